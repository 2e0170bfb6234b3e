import {
  CreateReplicaSetBody,
  MessageBody,
  ReadReplicaSetDetailSchema,
  ReadReplicaSetListSchema,
  ReadReplicaSetSchema,
  Ref,
  ResizeBody,
  SetEnvironmentBody,
  SetPurposeBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import {
  createReplicaSet,
  deleteReplicaSet,
  disableReplicaSetPooler,
  enableReplicaSetPooler,
  readReplicaSet,
  resizeReplicaSet,
  setReplicaSetEnvironment,
  setReplicaSetPurpose,
  type SetPath,
} from '../../services/replica-sets.ts';
import { listReplicaSets } from '../../store/services.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../change-requests.ts';
import { accepted, ForceQuery, ofService } from './schemas.ts';

const ofSet = Type.Object({
  project_id: Type.String(),
  service_id: Type.String(),
  replica_set_id: Type.String(),
});

const SETS = '/projects/:project_id/services/:service_id/replicaSets';
const SET = `${SETS}/:replica_set_id`;
const pathOf = ({
  service_id,
  replica_set_id,
}: {
  service_id: string;
  replica_set_id: string;
}): SetPath => ({
  serviceId: service_id,
  setId: replica_set_id,
});

export function replicaSetRoutes(api: App, context: ApiContext): void {
  api.get(
    SETS,
    {
      schema: {
        operationId: 'listReplicaSets',
        summary: 'List the read replica sets of a service',
        tags: ['read replica sets'],
        params: ofService,
        response: { 200: ReadReplicaSetListSchema },
      },
    },
    async (request) => listReplicaSets(context.store.db, request.service.key),
  );

  api.post(
    SETS,
    {
      schema: {
        operationId: 'createReplicaSet',
        summary: 'Create a read replica set',
        description:
          'Read-only nodes that follow the service, behind one endpoint, ' +
          'which the answer contains. Users and passwords are those of the service.',
        tags: ['read replica sets'],
        params: ofService,
        querystring: ForceQuery,
        body: Ref(CreateReplicaSetBody),
        response: { 202: Ref(ReadReplicaSetSchema) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await createReplicaSet(context, callerOf(request), request.service, request.body),
      ),
  );

  api.get(
    SET,
    {
      schema: {
        operationId: 'getReplicaSet',
        summary: 'Get a read replica set, with the current state of its nodes',
        tags: ['read replica sets'],
        params: ofSet,
        response: { 200: Ref(ReadReplicaSetDetailSchema) },
      },
    },
    async (request) => readReplicaSet(context, pathOf(request.params)),
  );

  api.delete(
    SET,
    {
      schema: {
        operationId: 'deleteReplicaSet',
        summary: 'Delete a read replica set',
        tags: ['read replica sets'],
        params: ofSet,
        response: { 202: accepted },
      },
    },
    async (request, reply) =>
      answer(reply, await deleteReplicaSet(context, callerOf(request), pathOf(request.params))),
  );

  api.post(
    `${SET}/resize`,
    {
      schema: {
        operationId: 'resizeReplicaSet',
        summary: 'Resize the nodes of a read replica set',
        description: 'One node after the other; the others keep accepting connections.',
        tags: ['read replica sets'],
        params: ofSet,
        querystring: ForceQuery,
        body: Ref(ResizeBody),
        response: { 202: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await resizeReplicaSet(context, callerOf(request), pathOf(request.params), request.body),
      ),
  );

  for (const [action, change] of [
    ['enablePooler', enableReplicaSetPooler],
    ['disablePooler', disableReplicaSetPooler],
  ] as const) {
    api.post(
      `${SET}/${action}`,
      {
        schema: {
          operationId: `${action}OfReplicaSet`,
          summary:
            `${action === 'enablePooler' ? 'Enable' : 'Disable'} the connection pooler ` +
            'of a read replica set',
          description: 'PgBouncer in front of all nodes, on its own port, which stays reserved.',
          tags: ['read replica sets'],
          params: ofSet,
          response: { 200: Ref(MessageBody) },
        },
      },
      async (request, reply) =>
        answer(reply, await change(context, callerOf(request), pathOf(request.params))),
    );
  }

  api.post(
    `${SET}/setPurpose`,
    {
      schema: {
        operationId: 'setPurposeOfReplicaSet',
        summary: 'Set what reads a read replica set is for',
        description: 'Its nodes get other settings within seconds; no session ends.',
        tags: ['read replica sets'],
        params: ofSet,
        body: Ref(SetPurposeBody),
        response: { 200: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setReplicaSetPurpose(
          context,
          callerOf(request),
          pathOf(request.params),
          request.body.purpose,
        ),
      ),
  );

  api.post(
    `${SET}/setEnvironment`,
    {
      schema: {
        operationId: 'setEnvironmentOfReplicaSet',
        summary: 'Set the environment tag of a read replica set',
        tags: ['read replica sets'],
        params: ofSet,
        body: Ref(SetEnvironmentBody),
        response: { 200: Ref(MessageBody) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await setReplicaSetEnvironment(
          context,
          callerOf(request),
          pathOf(request.params),
          request.body.environment,
        ),
      ),
  );
}
