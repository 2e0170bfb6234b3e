import {
  OPERATION_KINDS,
  OPERATION_STATUSES,
  OperationSchema,
  Ref,
  StringEnum,
} from '@howdah/contract';
import { Type } from 'typebox';
import { operationDocument } from '../../domain/operation/document.ts';
import { cancelOperation, describeOperation } from '../../services/operations.ts';
import { listOperations } from '../../store/operations.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../changes.ts';
import { pageOf, paging, sendList } from '../paging.ts';
import { ofProject } from './schemas.ts';

const ofOperation = Type.Object({ project_id: Type.String(), operation_id: Type.String() });

export function operationRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    '/projects/:project_id/operations',
    {
      schema: {
        operationId: 'listOperations',
        summary: 'List operations, newest first',
        description: 'Every accepted change is an operation.',
        tags: ['operations'],
        params: ofProject,
        querystring: Type.Object({
          ...paging('position'),
          service_id: Type.Optional(Type.String({ maxLength: 64 })),
          kind: Type.Optional(StringEnum(OPERATION_KINDS)),
          status: Type.Optional(StringEnum(OPERATION_STATUSES)),
        }),
        response: { 200: Type.Array(Ref(OperationSchema)) },
      },
    },
    async (request, reply) => {
      const { service_id: serviceId, kind, status } = request.query;
      const filter = {
        ...(serviceId === undefined || serviceId === '' ? {} : { serviceId: cleanId(serviceId) }),
        ...(kind === undefined ? {} : { kind }),
        ...(status === undefined ? {} : { status }),
      };
      return sendList(request, reply, 'position', async (after, limit) =>
        pageOf(
          await listOperations(store.db, request.key.project_id, filter, after, limit + 1),
          limit,
          (row) => operationDocument(row),
          (row) => row.position,
        ),
      );
    },
  );

  api.get(
    '/projects/:project_id/operations/:operation_id',
    {
      schema: {
        operationId: 'getOperation',
        summary: 'Get an operation with its steps',
        description:
          'For a running operation, remaining_seconds estimates how long it still takes.',
        tags: ['operations'],
        params: ofOperation,
        response: { 200: Ref(OperationSchema) },
      },
    },
    async (request) =>
      describeOperation(context, request.key.project_id, request.params.operation_id),
  );

  api.post(
    '/projects/:project_id/operations/:operation_id/cancel',
    {
      schema: {
        operationId: 'cancelOperation',
        summary: 'Cancel an operation',
        description:
          'Possible where it is safe: verifyBackup, runBackup and tryUpgrade while they ' +
          'run, drill and switchover before they have begun. Others run to their end; the ' +
          'answer says what to do instead. A cancelled operation has the status failed, and ' +
          'its error says who cancelled it.',
        tags: ['operations'],
        params: ofOperation,
        response: { 200: Ref(OperationSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await cancelOperation(context, callerOf(request), request.params.operation_id)),
  );
}

/** PostgreSQL cannot store NUL, so no id contains it, and a query with one would fail. */
function cleanId(id: string): string {
  return id.replaceAll('\0', '?');
}
