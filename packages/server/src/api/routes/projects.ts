import {
  ApiError,
  CreateProjectBody,
  FindingSchema,
  ProjectDetailsSchema,
  ProjectLimitsSchema,
  ProjectSchema,
  Ref,
  RegionSchema,
  RenameProjectBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import { createProject, readProject, setProject } from '../../services/projects.ts';
import { describeRegion } from '../../services/regions.ts';
import { readCommitted } from '../../store/committed.ts';
import { listProjects } from '../../store/projects.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';
import { ofProject } from './schemas.ts';

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
          'all: true needs an admin key of the operator project, such as the one that howdah up made',
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
          'Needs an admin key of the operator project. Its first key: POST /projects/{project_id}/keys with the same key.',
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
          'What is present, what is missing, and the command that adds it: the same as `howdah doctor`. The answer contains paths of the machine, so it needs an admin key of the operator project.',
        tags: ['projects'],
        response: { 200: Type.Array(Ref(FindingSchema)) },
      },
    },
    async () => doctor(),
  );
}
