import { CreateKeyBody, KeySchema, Ref } from '@howdah/contract';
import { Type } from 'typebox';
import { createKey, listProjectKeys, readKey, revokeProjectKey } from '../../services/keys.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';
import { ofProject } from './schemas.ts';

const ofKey = Type.Object({ project_id: Type.String(), public_key: Type.String() });

export function keyRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    '/projects/:project_id/keys',
    {
      config: { operatorToo: true },
      schema: {
        operationId: 'listKeys',
        summary: 'List the keys of a project, oldest first',
        description: 'Includes revoked and expired keys. Secrets are not shown again.',
        tags: ['keys'],
        params: ofProject,
        response: { 200: Type.Array(Ref(KeySchema)) },
      },
    },
    async (request) => listProjectKeys(store.db, request.params.project_id),
  );

  api.post(
    '/projects/:project_id/keys',
    {
      config: { operatorToo: true },
      schema: {
        operationId: 'createKey',
        summary: 'Create a key',
        description: 'Only this answer contains the secret half of the key. Needs an admin key.',
        tags: ['keys'],
        params: ofProject,
        body: Ref(CreateKeyBody),
        response: { 201: Ref(KeySchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await createKey(context, callerOf(request), request.params.project_id, request.body),
      ),
  );

  api.get(
    '/projects/:project_id/keys/:public_key',
    {
      config: { operatorToo: true },
      schema: {
        operationId: 'getKey',
        summary: 'Get a key',
        tags: ['keys'],
        params: ofKey,
        response: { 200: Ref(KeySchema) },
      },
    },
    async (request) => readKey(store.db, request.params.project_id, request.params.public_key),
  );

  api.delete(
    '/projects/:project_id/keys/:public_key',
    {
      config: { operatorToo: true },
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
    async (request, reply) =>
      answer(
        reply,
        await revokeProjectKey(
          context,
          callerOf(request),
          request.params.project_id,
          request.params.public_key,
        ),
      ),
  );
}
