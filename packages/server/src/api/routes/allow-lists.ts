/** Allow lists, and the services that they are attached to. */
import {
  AllowListInputBody,
  AllowListSchema,
  CreateAllowListBody,
  MessageBody,
  Ref,
  UpdateAllowListBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import { allowListDocument } from '../../domain/allow-list/document.ts';
import {
  attachToAllowList,
  createAllowList,
  deleteAllowList,
  detachFromAllowList,
  readAllowList,
  updateAllowList,
} from '../../services/allow-lists.ts';
import { listAllowLists } from '../../store/allow-lists.ts';
import { answer, callerOf } from '../changes.ts';
import type { ApiContext, App } from '../context.ts';
import { ofProject, ofService } from './schemas.ts';

const ofAllowList = Type.Object({ project_id: Type.String(), allow_list_id: Type.String() });
const tags = ['allow lists'];

export function allowListRoutes(api: App, context: ApiContext): void {
  readingRoutes(api, context);
  changingRoutes(api, context);
  attachmentRoutes(api, context);
}

function readingRoutes(api: App, { store }: ApiContext): void {
  api.get(
    '/projects/:project_id/allow-lists',
    {
      schema: {
        operationId: 'listAllowLists',
        summary: 'List the allow lists, oldest first',
        tags,
        params: ofProject,
        response: { 200: Type.Array(Ref(AllowListSchema)) },
      },
    },
    async (request) =>
      (await listAllowLists(store.db, request.key.project_id)).map(allowListDocument),
  );

  api.get(
    '/projects/:project_id/allow-lists/:allow_list_id',
    {
      schema: {
        operationId: 'getAllowList',
        summary: 'Get an allow list',
        tags,
        params: ofAllowList,
        response: { 200: Ref(AllowListSchema) },
      },
    },
    async (request) =>
      allowListDocument(
        await readAllowList(store.db, request.key.project_id, request.params.allow_list_id),
      ),
  );
}

function changingRoutes(api: App, context: ApiContext): void {
  api.post(
    '/projects/:project_id/allow-lists',
    {
      schema: {
        operationId: 'createAllowList',
        summary: 'Create an allow list',
        description: 'The networks whose clients may connect to the services that have the list.',
        tags,
        params: ofProject,
        body: Ref(CreateAllowListBody),
        response: { 201: Ref(AllowListSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createAllowList(context, callerOf(request), request.body)),
  );

  api.patch(
    '/projects/:project_id/allow-lists/:allow_list_id',
    {
      schema: {
        operationId: 'updateAllowList',
        summary: 'Change an allow list',
        description:
          'Fields that are left out stay. The services of the list follow without a restart; ' +
          'sessions of clients that are no longer allowed are terminated.',
        tags,
        params: ofAllowList,
        body: Ref(UpdateAllowListBody),
        response: { 200: Ref(AllowListSchema) },
      },
    },
    async (request, reply) => {
      const { allow_list_id: id } = request.params;
      return answer(reply, await updateAllowList(context, callerOf(request), id, request.body));
    },
  );

  api.delete(
    '/projects/:project_id/allow-lists/:allow_list_id',
    {
      schema: {
        operationId: 'deleteAllowList',
        summary: 'Delete an allow list that no service has',
        tags,
        params: ofAllowList,
        response: { 204: Type.Null({ description: 'deleted' }) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await deleteAllowList(context, callerOf(request), request.params.allow_list_id),
      ),
  );
}

function attachmentRoutes(api: App, context: ApiContext): void {
  for (const [operationId, change, summary, description] of [
    [
      'attachToAllowList',
      attachToAllowList,
      'Attach an allow list to a service',
      'Only clients of its networks can connect then. It takes the place of another list.',
    ],
    [
      'detachFromAllowList',
      detachFromAllowList,
      'Detach an allow list from a service',
      'The public endpoint accepts all clients again.',
    ],
  ] as const) {
    api.post(
      `/projects/:project_id/services/:service_id/${operationId}`,
      {
        schema: {
          operationId,
          summary,
          description,
          tags,
          params: ofService,
          body: Ref(AllowListInputBody),
          response: { 202: Ref(MessageBody) },
        },
      },
      async (request, reply) => {
        const { allow_list_id: listId } = request.body;
        const { key: id } = request.service;
        return answer(reply, await change(context, callerOf(request), id, listId));
      },
    );
  }
}
