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
import { answer, callerOf } from '../change-requests.ts';
import type { ApiContext, App } from '../context.ts';
import { ForceQuery, ofProject, resourceSchemas } from './schemas.ts';

const REPOSITORIES = '/repositories';
const REPOSITORY = `${REPOSITORIES}/:repository_id`;
const ofRepository = Type.Object({ repository_id: Type.String() });
const tags = ['repositories'];
const repositories = resourceSchemas({
  tag: 'repositories',
  ofMany: Type.Object({}),
  ofOne: ofRepository,
  document: RepositorySchema,
});
const OPERATORS = 'Needs an admin key of the operator project.';

export function repositoryRoutes(api: App, context: ApiContext): void {
  api.get(
    REPOSITORIES,
    repositories.list(
      'listRepositories',
      'List the repositories of the installation, oldest first',
      OPERATORS,
    ),
    async () => describeRepositories(context),
  );

  api.post(
    REPOSITORIES,
    repositories.create(
      CreateRepositoryBody,
      'createRepository',
      'Keep the backups of all services in a repository off the machine too',
      `${OPERATORS} It writes, reads and removes an object first. ` +
        'The backups are encrypted on the machine; the recovery kit has the passphrase.',
    ),
    async (request, reply) =>
      answer(reply, await createRepository(context, callerOf(request), request.body)),
  );

  api.get(
    REPOSITORY,
    repositories.get('getRepository', 'Get a repository', OPERATORS),
    async (request) => describeRepository(context, request.params.repository_id),
  );

  api.delete(
    REPOSITORY,
    repositories.delete(
      'deleteRepository',
      'Send no more backups to a repository; those in it stay',
      OPERATORS,
    ),
    async (request, reply) =>
      answer(
        reply,
        await deleteRepository(context, callerOf(request), request.params.repository_id),
      ),
  );

  api.post(
    `${REPOSITORY}/check`,
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
    `${REPOSITORY}/recoveryKit`,
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
