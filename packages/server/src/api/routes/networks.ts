import {
  CreatePeeringBody,
  CreateVpcBody,
  PeeringSchema,
  Ref,
  RenamedVpcSchema,
  RenameVpcBody,
  VpcSchema,
  AllowListInputBody,
  AllowListSchema,
  CreateAllowListBody,
  MessageBody,
  UpdateAllowListBody,
} from '@howdah/contract';
import { Type } from 'typebox';
import { answer, callerOf } from '../changes.ts';
import {
  peeringDocument,
  vpcDocument,
  createVpc,
  deleteVpc,
  renameVpc,
} from '../../services/vpcs.ts';
import { createPeering, deletePeering } from '../../services/peerings.ts';
import { listPeerings, listVpcs } from '../../store/vpcs.ts';
import type { ApiContext, App } from '../context.ts';
import { ofProject, ofService } from './schemas.ts';
import {
  allowListDocument,
  attachToAllowList,
  createAllowList,
  deleteAllowList,
  detachFromAllowList,
  readAllowList,
  updateAllowList,
} from '../../services/allow-lists.ts';
import { listAllowLists } from '../../store/allow-lists.ts';

const ofVpc = Type.Object({ project_id: Type.String(), vpc_id: Type.String() });
const ofPeering = Type.Object({
  project_id: Type.String(),
  vpc_id: Type.String(),
  peering_id: Type.String(),
});
const tags = ['VPCs'];

export function vpcRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    '/projects/:project_id/vpcs',
    {
      schema: {
        operationId: 'listVpcs',
        summary: 'List all VPCs',
        tags,
        params: ofProject,
        response: { 200: Type.Array(Ref(VpcSchema)) },
      },
    },
    async (request) => (await listVpcs(store.db, request.key.project_id)).map(vpcDocument),
  );

  api.post(
    '/projects/:project_id/vpcs',
    {
      schema: {
        operationId: 'createVpc',
        summary: 'Create a VPC',
        tags,
        params: ofProject,
        body: Ref(CreateVpcBody),
        response: { 201: Ref(VpcSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createVpc(context, callerOf(request), request.body)),
  );

  api.get(
    '/projects/:project_id/vpcs/:vpc_id',
    {
      schema: {
        operationId: 'getVpc',
        summary: 'Get a VPC',
        tags,
        params: ofVpc,
        response: { 200: Ref(VpcSchema) },
      },
    },
    async (request) => vpcDocument(request.vpc),
  );

  api.delete(
    '/projects/:project_id/vpcs/:vpc_id',
    {
      schema: {
        operationId: 'deleteVpc',
        summary: 'Delete a VPC without services and peerings',
        tags,
        params: ofVpc,
        response: { 204: Type.Null({ description: 'deleted' }) },
      },
    },
    async (request, reply) =>
      answer(reply, await deleteVpc(context, callerOf(request), request.vpc.id)),
  );

  api.post(
    '/projects/:project_id/vpcs/:vpc_id/rename',
    {
      schema: {
        operationId: 'renameVpc',
        summary: 'Rename a VPC',
        tags,
        params: ofVpc,
        body: Ref(RenameVpcBody),
        response: { 200: Ref(RenamedVpcSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await renameVpc(context, callerOf(request), request.vpc.id, request.body.name)),
  );

  api.get(
    '/projects/:project_id/vpcs/:vpc_id/peerings',
    {
      schema: {
        operationId: 'listPeerings',
        summary: 'List the peerings of a VPC',
        tags,
        params: ofVpc,
        response: { 200: Type.Array(Ref(PeeringSchema)) },
      },
    },
    async (request) => (await listPeerings(store.db, request.vpc.id)).map(peeringDocument),
  );

  api.post(
    '/projects/:project_id/vpcs/:vpc_id/peerings',
    {
      schema: {
        operationId: 'createPeering',
        summary: 'Create a VPC peering',
        description:
          'Inside a project it is active at once. Between projects it is pending until the other side requests the same peering. An impossible peering is invalid, with the reason in error_message.',
        tags,
        params: ofVpc,
        body: Ref(CreatePeeringBody),
        response: { 201: Ref(PeeringSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await createPeering(context, callerOf(request), request.vpc.id, request.body)),
  );

  api.get(
    '/projects/:project_id/vpcs/:vpc_id/peerings/:peering_id',
    {
      schema: {
        operationId: 'getPeering',
        summary: 'Get a VPC peering',
        tags,
        params: ofPeering,
        response: { 200: Ref(PeeringSchema) },
      },
    },
    async (request) => peeringDocument(request.peering),
  );

  api.delete(
    '/projects/:project_id/vpcs/:vpc_id/peerings/:peering_id',
    {
      schema: {
        operationId: 'deletePeering',
        summary: 'Delete a VPC peering, on both sides',
        description: 'Open connections through it end.',
        tags,
        params: ofPeering,
        response: { 204: Type.Null({ description: 'deleted' }) },
      },
    },
    async (request, reply) =>
      answer(
        reply,
        await deletePeering(context, callerOf(request), request.vpc.id, request.peering.id),
      ),
  );
}

// Allow lists, and the services that they are attached to.

const ofAllowList = Type.Object({ project_id: Type.String(), allow_list_id: Type.String() });
const allowListTags = ['allow lists'];

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
        tags: allowListTags,
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
        tags: allowListTags,
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
        tags: allowListTags,
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
        tags: allowListTags,
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
        tags: allowListTags,
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
          tags: allowListTags,
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
