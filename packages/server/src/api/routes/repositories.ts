/** Routes of repositories: where backups are kept off the machine. */
import {
  CreateFromKitBody,
  CreateRepositoryBody,
  RecoveryKitSchema,
  Ref,
  RepositorySchema,
  ServiceSchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import { createServiceFromKit } from '../../services/create-from-kit.ts';
import {
  checkOne,
  createRepository,
  deleteRepository,
  describeRepositories,
  describeRepository,
  readRecoveryKit,
} from '../../services/repositories.ts';
import { answer, callerOf } from '../changes.ts';
import type { ApiContext, App } from '../context.ts';
import { ForceQuery, ofProject } from './schemas.ts';

const ofRepository = Type.Object({ repository_id: Type.String() });
const tags = ['repositories'];
const OPERATORS = 'Needs an admin key of the operator project.';

export function repositoryRoutes(api: App, context: ApiContext): void {
  api.get(
    '/repositories',
    {
      schema: {
        operationId: 'listRepositories',
        summary: 'List the repositories of the installation, oldest first',
        description: OPERATORS,
        tags,
        response: { 200: Type.Array(Ref(RepositorySchema)) },
      },
    },
    async () => describeRepositories(context),
  );

  api.post(
    '/repositories',
    {
      schema: {
        operationId: 'createRepository',
        summary: 'Keep the backups of all services in a repository off the machine too',
        description:
          `${OPERATORS} It writes, reads and removes an object first. ` +
          'The backups are encrypted on the machine; the recovery kit has the passphrase.',
        tags,
        body: Ref(CreateRepositoryBody),
        response: { 201: Ref(RepositorySchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createRepository(context, callerOf(request), request.body)),
  );

  api.get(
    '/repositories/:repository_id',
    {
      schema: {
        operationId: 'getRepository',
        summary: 'Get a repository',
        description: OPERATORS,
        tags,
        params: ofRepository,
        response: { 200: Ref(RepositorySchema) },
      },
    },
    async (request) => describeRepository(context, request.params.repository_id),
  );

  api.delete(
    '/repositories/:repository_id',
    {
      schema: {
        operationId: 'deleteRepository',
        summary: 'Send no more backups to a repository; those in it stay',
        description: OPERATORS,
        tags,
        params: ofRepository,
        response: { 204: Type.Null({ description: 'deleted' }) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await deleteRepository(context, callerOf(request), request.params.repository_id),
      ),
  );

  api.post(
    '/repositories/:repository_id/check',
    {
      schema: {
        operationId: 'checkRepository',
        summary: 'Write, read and remove an object in a repository now',
        description: OPERATORS,
        tags,
        params: ofRepository,
        response: { 200: Ref(RepositorySchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await checkOne(context, callerOf(request), request.params.repository_id)),
  );

  api.post(
    '/repositories/:repository_id/recoveryKit',
    {
      schema: {
        operationId: 'getRecoveryKit',
        summary: 'Get the recovery kit of a repository: its address, credentials and passphrase',
        description:
          `${OPERATORS} The kit is a secret, and the only way to the backups once the machine is ` +
          'lost: keep it where neither the machine nor the repository is.',
        tags,
        params: ofRepository,
        response: { 200: Ref(RecoveryKitSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await readRecoveryKit(context, callerOf(request), request.params.repository_id),
      ),
  );

  api.post(
    '/projects/:project_id/services/fromKit',
    {
      schema: {
        operationId: 'createServiceFromKit',
        summary: 'Create a service with the data of one of another installation',
        description:
          `${OPERATORS} The data comes from the repository of the recovery kit, which is only ` +
          'read. The service has another id, endpoint and password of its administrator; all ' +
          'other roles keep theirs. A dry run lists the services there, and says which moment ' +
          'comes back of each. The answer contains the initial password, which no other answer ' +
          'contains.',
        tags,
        params: ofProject,
        querystring: ForceQuery,
        body: Ref(CreateFromKitBody),
        response: { 202: Ref(ServiceSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createServiceFromKit(context, callerOf(request), request.body)),
  );
}
