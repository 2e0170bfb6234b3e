import { ApiError, OperationSchema, Ref } from '@howdah/contract';
import { Type } from 'typebox';
import { findOperation, listOperations, operationDocument } from '../../store/operations.ts';
import type { ApiContext, App } from '../app.ts';

export function operationRoutes(api: App, { store }: ApiContext): void {
  api.get(
    '/projects/:project_id/operations',
    {
      schema: {
        operationId: 'listOperations',
        summary: 'List operations, newest first',
        description: 'Every accepted change is an operation. At most the newest 1000.',
        tags: ['operations'],
        params: Type.Object({ project_id: Type.String() }),
        querystring: Type.Object({ service_id: Type.Optional(Type.String({ maxLength: 64 })) }),
        response: { 200: Type.Array(Ref(OperationSchema)) },
      },
    },
    async (request) => (await listOperations(store.db, request.key.project_id, cleanId(request.query.service_id))).map(operationDocument),
  );

  api.get(
    '/projects/:project_id/operations/:operation_id',
    {
      schema: {
        operationId: 'getOperation',
        summary: 'Get an operation with its steps',
        tags: ['operations'],
        params: Type.Object({ project_id: Type.String(), operation_id: Type.String() }),
        response: { 200: Ref(OperationSchema) },
      },
    },
    async (request) => {
      const { operation_id: id } = request.params;
      const found = id.includes('\0') ? null : await findOperation(store.db, request.key.project_id, id);
      if (found === null) throw new ApiError('NOT_FOUND', `no operation with that id exists: ${JSON.stringify(id.slice(0, 64))}`);
      return operationDocument(found);
    },
  );
}

/** The store cannot be asked for a NUL; nothing has an id with one. */
function cleanId(id: string | undefined): string | null {
  return id === undefined || id === '' ? null : id.replaceAll('\0', '?');
}
