import {
  AttachBody,
  BackupsSchema,
  CreateServiceBody,
  DetachBody,
  DrillBody,
  ForkBody,
  LogsSchema,
  MAX_NODES,
  MAX_REPLICAS,
  MessageBody,
  QueryBody,
  QueryResultSchema,
  Ref,
  RenameBody,
  ResizeBody,
  SeriesBody,
  SeriesSchema,
  SERIES_NAMES,
  SERVICE_STATUSES,
  ServiceListSchema,
  ServiceSchema,
  SetEnvironmentBody,
  SetHABody,
  StringEnum,
  UpdatePasswordBody,
  ApiError,
} from '@howdah/contract';
import { Type } from 'typebox';
import {
  renameService,
  startService,
  stopService,
  resizeService,
  setServiceEnvironment,
  updatePassword,
  verifyBackup,
} from '../../services/change-service.ts';
import { createService } from '../../services/create-service.ts';
import { deleteService, purgeService, restoreService } from '../../services/delete-service.ts';
import { forkService } from '../../services/fork-service.ts';
import { setReplicas, startDrill, switchOver } from '../../services/replicas.ts';
import {
  attachToVpc,
  detachFromVpc,
  enableServicePooler,
  disableServicePooler,
} from '../../services/service-network.ts';
import {
  readBackups,
  readLogPage,
  readMetricSeries,
  runStatement,
} from '../../services/service-reads.ts';
import { listServiceDocuments, type ServiceDoc } from '../../store/service-documents.ts';
import { parseMoment } from '../../lib/moment.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';
import { paging, sendList } from '../paging.ts';
import { clientOf, sendText } from '../reply.ts';

const ofProject = Type.Object({ project_id: Type.String() });
const ofService = Type.Object({ project_id: Type.String(), service_id: Type.String() });
const accepted = Type.Null({
  description: 'accepted; the header Operation-Id names the operation',
});
const oneOrMore = Type.Optional(
  Type.Union([
    Type.String({ maxLength: 256 }),
    Type.Array(Type.String({ maxLength: 256 }), { maxItems: 20 }),
  ]),
);

const LogsQuery = Type.Object({
  node: Type.Optional(Type.String()),
  since: Type.Optional(Type.String({ description: 'only entries at or after this date-time' })),
  until: Type.Optional(Type.String({ description: 'only entries before this date-time' })),
  cursor: Type.Optional(Type.String({ maxLength: 200 })),
  search: oneOrMore,
  severities: oneOrMore,
});
const LOG_PAGE = 500;

const DeleteQuery = Type.Object({
  purge: Type.Optional(
    StringEnum(['true', 'false'], { description: 'true: for good, without a time for a restore' }),
  ),
  confirm: Type.Optional(
    Type.String({ maxLength: 256, description: 'the name of a PROD service that is purged' }),
  ),
});

const ServicesQuery = Type.Object({
  ...paging,
  status: Type.Optional(
    StringEnum(SERVICE_STATUSES, { description: 'only those with this status' }),
  ),
});

export function serviceRoutes(api: App, context: ApiContext): void {
  api.get(
    '/projects/:project_id/services',
    {
      schema: {
        operationId: 'listServices',
        summary: 'List all services, oldest first',
        tags: ['services'],
        params: ofProject,
        querystring: ServicesQuery,
        response: { 200: ServiceListSchema },
      },
    },
    async (request, reply) =>
      sendList(request, reply, 'position', (after, limit) =>
        listServiceDocuments(
          context.store.pool,
          request.key.project_id,
          request.query.status ?? null,
          after,
          limit,
        ),
      ),
  );

  api.post(
    '/projects/:project_id/services',
    {
      schema: {
        operationId: 'createService',
        summary: 'Create a service',
        description:
          'The answer holds the final endpoint and, here and nowhere else, the initial password.',
        tags: ['services'],
        params: ofProject,
        body: Ref(CreateServiceBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createService(context, callerOf(request), request.body)),
  );

  api.get(
    '/projects/:project_id/services/:service_id',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'getService',
        summary: 'Get a service',
        tags: ['services'],
        params: ofService,
        response: { 200: Ref(ServiceSchema) },
      },
    },
    // Not async: for each promise of a reply the framework listens to the end of its answer, a tenth of such a call.
    (request, reply) => void sendText(reply, 200, request.service.doc),
  );

  api.delete(
    '/projects/:project_id/services/:service_id',
    {
      config: { purges: true },
      schema: {
        operationId: 'deleteService',
        summary: 'Delete a service',
        description:
          'It can be restored for a while, and its data stays that long. With purge=true (admin keys) it is removed for good, and one that is deleted already too.',
        tags: ['services'],
        params: ofService,
        querystring: DeleteQuery,
        response: { 202: accepted },
      },
    },
    async (request, reply) => {
      const { purge, confirm } = request.query;
      const [caller, id] = [callerOf(request), request.service.key];
      return answer(
        reply,
        purge === 'true'
          ? await purgeService(context, caller, id, confirm)
          : await deleteService(context, caller, id),
      );
    },
  );

  api.post(
    '/projects/:project_id/services/:service_id/forkService',
    {
      schema: {
        operationId: 'forkService',
        summary: 'Fork a service',
        description:
          'The answer holds the final endpoint and, here and nowhere else, the initial password of the fork.',
        tags: ['backups'],
        params: ofService,
        body: Ref(ForkBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await forkService(context, callerOf(request), request.service.key, request.body),
      ),
  );

  api.get(
    '/projects/:project_id/services/:service_id/backups',
    {
      schema: {
        operationId: 'getBackups',
        summary: 'Snapshots, and the window that can be reached',
        tags: ['backups'],
        params: ofService,
        response: { 200: Ref(BackupsSchema) },
      },
    },
    async (request) => readBackups(context, request.service.key),
  );

  api.post(
    '/projects/:project_id/services/:service_id/backups/verify',
    {
      schema: {
        operationId: 'verifyBackup',
        summary: 'Verify the newest backup by restoring it',
        description:
          'Beside the service, which goes on, and beside other operations on it. Asked for again while it is under way, the same operation is named.',
        tags: ['backups'],
        params: ofService,
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(reply, await verifyBackup(context, callerOf(request), request.service.key)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/restore',
    {
      config: { deletedToo: true },
      schema: {
        operationId: 'restoreService',
        summary: 'Bring a deleted service back',
        description:
          'With its id, endpoint, data and password, for a day after it was deleted, or as long as the installation keeps them.',
        tags: ['backups'],
        params: ofService,
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await restoreService(context, callerOf(request), request.service.key)),
  );

  for (const [action, change] of [
    ['start', startService],
    ['stop', stopService],
  ] as const) {
    api.post(
      `/projects/:project_id/services/:service_id/${action}`,
      {
        schema: {
          operationId: `${action}Service`,
          summary: `${action === 'start' ? 'Start' : 'Stop'} a service`,
          tags: ['services'],
          params: ofService,
          response: { 202: Ref(ServiceSchema) },
        },
      },
      async (request, reply) =>
        answer(reply, await change(context, callerOf(request), request.service.key)),
    );
  }

  api.post(
    '/projects/:project_id/services/:service_id/resize',
    {
      schema: {
        operationId: 'resizeService',
        summary: 'Resize a service',
        tags: ['services'],
        params: ofService,
        body: Ref(ResizeBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await resizeService(context, callerOf(request), request.service.key, request.body),
      ),
  );

  for (const [action, change] of [
    ['enablePooler', enableServicePooler],
    ['disablePooler', disableServicePooler],
  ] as const) {
    api.post(
      `/projects/:project_id/services/:service_id/${action}`,
      {
        schema: {
          operationId: action,
          summary: `${action === 'enablePooler' ? 'Enable' : 'Disable'} the connection pooler`,
          description:
            'PgBouncer in front of the service, on a port of its own, which it keeps. For a paused service, from its start on.',
          tags: ['services'],
          params: ofService,
          response: { 200: Ref(MessageBody) },
        },
      },
      async (request, reply) =>
        answer(reply, await change(context, callerOf(request), request.service.key)),
    );
  }

  api.post(
    '/projects/:project_id/services/:service_id/attachToVPC',
    {
      schema: {
        operationId: 'attachToVPC',
        summary: 'Attach a service to a VPC',
        description:
          'From then on only clients inside the VPC and those that it is peered with get in. The public endpoint stays reserved.',
        tags: ['VPCs'],
        params: ofService,
        body: Ref(AttachBody),
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await attachToVpc(context, callerOf(request), request.service.key, request.body.vpc_id),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/detachFromVPC',
    {
      // A body without fields may be left out.
      preValidation: async (request) =>
        void (request.body = request.body === undefined ? {} : request.body),
      schema: {
        operationId: 'detachFromVPC',
        summary: 'Detach a service from its VPC',
        description: 'Its public endpoint, the same as before, is open to all again.',
        tags: ['VPCs'],
        params: ofService,
        body: Ref(DetachBody),
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await detachFromVpc(
          context,
          callerOf(request),
          request.service.key,
          request.body.vpc_id ?? null,
        ),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/setHA',
    {
      schema: {
        operationId: 'setHA',
        summary: 'Set how many replicas stand by',
        description:
          'What is left out stays as it is. Synchronous replicas have every write before it is acknowledged.',
        tags: ['high availability'],
        params: ofService,
        body: Ref(SetHABody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setReplicas(context, callerOf(request), request.service.key, request.body),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/switchover',
    {
      schema: {
        operationId: 'switchover',
        summary: 'Make a replica the primary',
        description:
          'In order: nothing that was acknowledged is lost. Sessions end; new ones wait for a moment.',
        tags: ['high availability'],
        params: ofService,
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await switchOver(context, callerOf(request), request.service.key)),
  );

  api.post(
    '/projects/:project_id/services/:service_id/drill',
    {
      schema: {
        operationId: 'drill',
        summary: 'Rehearse a failover or a switchover',
        description:
          'Under a writer of our own: the operation says for how long writes were not possible, and how many were lost.',
        tags: ['high availability'],
        params: ofService,
        body: Ref(DrillBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await startDrill(context, callerOf(request), request.service.key, request.body),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/updatePassword',
    {
      schema: {
        operationId: 'updatePassword',
        summary: 'Update the password of tsdbadmin',
        description: 'Live before the answer; running sessions stay.',
        tags: ['services'],
        params: ofService,
        body: Ref(UpdatePasswordBody),
        response: { 204: Type.Null({ description: 'the new password is live' }) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await updatePassword(
          context,
          callerOf(request),
          request.service.key,
          request.body.password,
        ),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/setEnvironment',
    {
      schema: {
        operationId: 'setEnvironment',
        summary: 'Set the environment tag',
        tags: ['services'],
        params: ofService,
        body: Ref(SetEnvironmentBody),
        response: { 200: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setServiceEnvironment(
          context,
          callerOf(request),
          request.service.key,
          request.body.environment,
        ),
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/rename',
    {
      schema: {
        operationId: 'renameService',
        summary: 'Rename a service',
        tags: ['services'],
        params: ofService,
        body: Ref(RenameBody),
        response: { 200: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await renameService(context, callerOf(request), request.service.key, request.body.name),
      ),
  );

  api.get(
    '/projects/:project_id/services/:service_id/logs',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'getServiceLogs',
        summary: 'Read the logs, newest first',
        tags: ['services'],
        params: ofService,
        querystring: LogsQuery,
        response: { 200: Ref(LogsSchema) },
      },
    },
    async (request, reply) => {
      const { node, since, until, cursor, search, severities } = request.query;
      const { entries, cursor: next } = await readLogPage(
        context,
        request.service.key,
        nodeOf(node, request.service),
        {
          sinceMs: momentOf('since', since),
          untilMs: momentOf('until', until),
          cursor: cursor === undefined || cursor === '' ? null : cursor,
          search: [search ?? []].flat(),
          severities: [severities ?? []].flat().map((severity) => severity.toUpperCase()),
          limit: LOG_PAGE,
        },
        clientOf(reply),
      );
      const logs = entries.map(
        ({ timestamp, severity, message }) => `${timestamp} ${severity}: ${message}`,
      );
      return { logs, entries, ...(next === null ? {} : { last_cursor: next, lastCursor: next }) };
    },
  );

  api.get(
    '/projects/:project_id/services/:service_id/metrics/available-series',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'listSeries',
        summary: 'List the series that are kept',
        tags: ['metrics'],
        params: ofService,
        response: { 200: Type.Array(Type.String()) },
      },
    },
    async () => [...SERIES_NAMES],
  );

  api.post(
    '/projects/:project_id/services/:service_id/metrics/series',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'querySeries',
        summary: 'Read a series',
        tags: ['metrics'],
        params: ofService,
        body: Ref(SeriesBody),
        response: { 200: Type.Array(Ref(SeriesSchema)) },
      },
    },
    async (request) =>
      readMetricSeries(
        context,
        request.service.key,
        request.service.parent_id === null ? 0 : 1,
        request.body,
      ),
  );

  api.post(
    '/projects/:project_id/services/:service_id/query',
    {
      config: { setsToo: true },
      schema: {
        operationId: 'queryService',
        summary: 'Run one statement that only reads',
        description:
          'As a role that may read everything and write nothing, in a transaction that cannot write. Of a read replica set, on one of its nodes.',
        tags: ['services'],
        params: ofService,
        body: Ref(QueryBody),
        response: { 200: Ref(QueryResultSchema) },
      },
    },
    async (request, reply) =>
      sendText(
        reply,
        200,
        JSON.stringify(await runStatement(context, request.service, request.body)),
      ),
  );
}

/** The number of a member, or of a node of a read replica set; null: the one that accepts writes, or the first. */
function nodeOf(node: string | undefined, { parent_id: parent }: ServiceDoc): number | null {
  if (node === undefined || node === '') return null;
  const [least, most, whose] =
    parent === null
      ? [0, MAX_REPLICAS, 'the members of a service']
      : [1, MAX_NODES, 'the nodes of a read replica set'];
  const n = /^[0-9]{1,2}$/.test(node) ? Number(node) : most + 1;
  if (n < least || n > most)
    throw new ApiError(
      'INVALID_REQUEST',
      `node: found ${JSON.stringify(node)}; allowed: ${least} to ${most}, ${whose}`,
    );
  return n;
}

function momentOf(name: string, text: string | undefined): number | null {
  if (text === undefined || text === '') return null;
  const moment = parseMoment(text);
  if (moment === null) {
    throw new ApiError(
      'INVALID_REQUEST',
      `${name}: found ${JSON.stringify(text.slice(0, 64))}; expected a date-time like 2026-01-31T12:00:00Z`,
    );
  }
  return moment.ms;
}
