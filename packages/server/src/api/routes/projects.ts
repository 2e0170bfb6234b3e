import {
  ApiError,
  CreateProjectBody,
  FindingSchema,
  ProjectDetailsSchema,
  ServiceUsageSchema,
  ProjectLimitsSchema,
  ProjectSchema,
  Ref,
  RegionSchema,
  RenameProjectBody,
  DeletedServiceSchema,
  MemberSchema,
  CreateKeyBody,
  KeySchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import { createProject, readProject, setProject } from '../../services/projects.ts';
import { describeRegion } from '../../services/regions.ts';
import { readCommitted } from '../../store/committed-sizes.ts';
import { listProjects } from '../../store/projects.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../change-requests.ts';
import { paging, sendList } from '../paging.ts';
import { clientOf } from '../reply.ts';
import { ofProject, ofService, resourceSchemas } from './schemas.ts';
import { restoreRisk, type RestoreRisk } from '../../domain/disk.ts';
import { readDisk } from '../../services/room.ts';
import { restorableUntilMs } from '../../domain/service/removal.ts';
import { readServers } from '../../services/service-reads.ts';
import { listDeletedServices } from '../../store/service-documents.ts';
import { listUsage } from '../../services/usage.ts';
import { createKey, listProjectKeys, readKey, revokeProjectKey } from '../../services/keys.ts';

export function projectRoutes(api: App, context: ApiContext): void {
  const { store, regions, doctor } = context;
  api.get(
    '/projects',
    {
      schema: {
        operationId: 'listProjects',
        summary: 'List the projects that the key reaches',
        tags: ['projects'],
        querystring: Type.Object({
          all: Type.Optional(
            Type.String({
              pattern: '^(true|false)$',
              description: 'true: every project; needs an operator’s key',
            }),
          ),
        }),
        response: { 200: Type.Array(Ref(ProjectSchema)) },
      },
    },
    async ({ key, query }) => {
      if (query.all !== 'true') return [{ id: key.project_id, name: key.project_name }];
      if (!(key.operator && key.role === 'admin'))
        throw new ApiError(
          'FORBIDDEN',
          'all: true needs an admin key of the operator project, ' +
            'such as the one that howdah up made',
        );
      return listProjects(store.db);
    },
  );

  api.post(
    '/projects',
    {
      schema: {
        operationId: 'createProject',
        summary: 'Create a project',
        description:
          'Needs an admin key of the operator project. Its first key: ' +
          'POST /projects/{project_id}/keys with the same key.',
        tags: ['projects'],
        body: Ref(CreateProjectBody),
        response: { 201: Ref(ProjectDetailsSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createProject(context, callerOf(request), request.body)),
  );

  api.get(
    '/projects/:project_id',
    {
      config: { operatorToo: true },
      schema: {
        operationId: 'getProject',
        summary: 'Get a project with its limits and its usage',
        tags: ['projects'],
        params: ofProject,
        response: { 200: Ref(ProjectDetailsSchema) },
      },
    },
    async (request) => readProject(store.db, request.params.project_id),
  );

  api.post(
    '/projects/:project_id/rename',
    {
      config: { operatorToo: true },
      schema: {
        operationId: 'renameProject',
        summary: 'Rename a project',
        description: 'Needs an admin key.',
        tags: ['projects'],
        params: ofProject,
        body: Ref(RenameProjectBody),
        response: { 200: Ref(ProjectDetailsSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setProject(context, callerOf(request), request.params.project_id, request.body),
      ),
  );

  api.post(
    '/projects/:project_id/setLimits',
    {
      config: { operatorToo: true },
      schema: {
        operationId: 'setProjectLimits',
        summary: 'Set the limits of a project',
        description:
          'Needs an admin key of the operator project. Existing services stay, also above a limit.',
        tags: ['projects'],
        params: ofProject,
        body: Ref(ProjectLimitsSchema),
        response: { 200: Ref(ProjectDetailsSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setProject(context, callerOf(request), request.params.project_id, {
          limits: request.body,
        }),
      ),
  );

  api.get(
    '/projects/:project_id/regions',
    {
      schema: {
        operationId: 'listRegions',
        summary: 'List the regions with what they can run',
        tags: ['projects'],
        params: ofProject,
        response: { 200: Type.Array(Ref(RegionSchema)) },
      },
    },
    async ({ key }) => {
      const all = key.operator ? await readCommitted(store.db) : null;
      return Promise.all(regions.all.map((region) => describeRegion(region, all)));
    },
  );

  api.get(
    '/doctor',
    {
      schema: {
        operationId: 'getDoctor',
        summary: 'Examine the machine of this installation',
        description:
          'What is present, what is missing, and the command that adds it: ' +
          'the same as `howdah doctor`. The answer contains paths of the machine, ' +
          'so it needs an admin key of the operator project.',
        tags: ['projects'],
        response: { 200: Type.Array(Ref(FindingSchema)) },
      },
    },
    async () => doctor(),
  );
}

/** The servers of a service, and the deleted services of a project. */
export function memberRoutes(api: App, context: ApiContext): void {
  const { store, regions, restoreWindowMs } = context;
  api.get(
    '/projects/:project_id/services/:service_id/members',
    {
      schema: {
        operationId: 'listMembers',
        summary: 'List the servers of a service',
        description: 'The primary and its standbys, in their current state.',
        tags: ['high availability'],
        params: ofService,
        response: { 200: Type.Array(Ref(MemberSchema)) },
      },
    },
    async (request) => readServers(context, request.service),
  );

  api.get(
    '/projects/:project_id/deletedServices',
    {
      schema: {
        operationId: 'listDeletedServices',
        summary: 'List the deleted services that can be restored, newest first',
        tags: ['backups'],
        params: ofProject,
        response: { 200: Type.Array(Ref(DeletedServiceSchema)) },
      },
    },
    async (request) => {
      const rows = await listDeletedServices(store.db, request.key.project_id);
      const codes = new Set(rows.map(({ region_code: code }) => code));
      const risks = new Map<string, RestoreRisk>();
      for (const { code, engine } of regions.all.filter((region) => codes.has(region.code))) {
        const usage = await readDisk(engine);
        if (usage !== null) risks.set(code, restoreRisk(usage));
      }
      return (
        rows
          // From a repository that was removed, nothing is restored until it is added again.
          .filter(({ kept, repository }) => kept === null || repository !== null)
          .map((row) => deletedDocument(row, restoreWindowMs, risks.get(row.region_code) ?? null))
      );
    },
  );
}

type DeletedRow = Awaited<ReturnType<typeof listDeletedServices>>[number];

/** @param risk what may end the time early; null: nothing, or its region is switched off */
function deletedDocument(row: DeletedRow, restoreWindowMs: number, risk: RestoreRisk | null) {
  const { id, name, service_type, environment, created_by, deleted_at, repository, kept } = row;
  const untilMs = restorableUntilMs(row, restoreWindowMs);
  const ownRisk = kept === null ? risk : null;
  return {
    service_id: id,
    name,
    service_type,
    environment,
    ...(created_by === null ? {} : { created_by }),
    deleted: new Date(deleted_at ?? 0).toISOString(),
    ...(untilMs === null ? {} : { restorable_until: new Date(untilMs).toISOString() }),
    ...(ownRisk === null ? {} : { restore_note: ownRisk.note }),
    restore_at_risk: ownRisk?.isHigh === true,
    ...(repository === null ? {} : { repository }),
  };
}

export function usageRoutes(api: App, context: ApiContext): void {
  const { restoreWindowMs } = context;
  api.get(
    '/projects/:project_id/usage',
    {
      config: { operatorToo: true },
      schema: {
        operationId: 'listUsage',
        summary: 'List what each service takes, and why, oldest first',
        description:
          'Read replica sets too, and deleted services whose data is kept. The disk is measured ' +
          'for the answer: a page has at most 64 services.',
        tags: ['projects'],
        params: ofProject,
        querystring: Type.Object(paging('position')),
        response: { 200: Type.Array(Ref(ServiceUsageSchema)) },
      },
    },
    async (request, reply) => {
      const { project_id: projectId } = request.params;
      const client = clientOf(reply);
      return sendList(request, reply, 'position', async (after, limit) => {
        const page = await context.usageReads(projectId, client, () =>
          listUsage(context, projectId, restoreWindowMs, after, limit),
        );
        return {
          json: page.services.map((one) => JSON.stringify(one)).join(','),
          next: page.next,
        };
      });
    },
  );
}

const KEYS = '/projects/:project_id/keys';
const KEY = `${KEYS}/:public_key`;
const ofKey = Type.Object({ project_id: Type.String(), public_key: Type.String() });
const keys = resourceSchemas({
  tag: 'keys',
  ofMany: ofProject,
  ofOne: ofKey,
  document: KeySchema,
});
const config = { operatorToo: true };

export function keyRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    KEYS,
    {
      config,
      ...keys.list(
        'listKeys',
        'List the keys of a project, oldest first',
        'Includes revoked and expired keys. Secrets are not shown again.',
      ),
    },
    async (request) => listProjectKeys(store.db, request.params.project_id),
  );

  api.post(
    KEYS,
    {
      config,
      ...keys.create(
        CreateKeyBody,
        'createKey',
        'Create a key',
        'Only this answer contains the secret half of the key. Needs an admin key.',
      ),
    },
    async (request, reply) =>
      answer(
        reply,
        await createKey(context, callerOf(request), request.params.project_id, request.body),
      ),
  );

  api.get(KEY, { config, ...keys.get('getKey', 'Get a key') }, async (request) =>
    readKey(store.db, request.params.project_id, request.params.public_key),
  );

  api.delete(
    KEY,
    {
      config,
      schema: {
        operationId: 'revokeKey',
        summary: 'Revoke a key',
        description:
          'The key is refused at once, everywhere. It stays in the list. Needs an admin key.',
        tags: ['keys'],
        params: ofKey,
        response: { 204: Type.Null({ description: 'the key is refused from now on' }) },
      },
    },
    async (request, reply) => {
      const { project_id: projectId, public_key: key } = request.params;
      return answer(reply, await revokeProjectKey(context, callerOf(request), projectId, key));
    },
  );
}
