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
import { answer, callerOf } from '../change-requests.ts';
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
import { ofProject, ofService, resourceSchemas } from './schemas.ts';
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

const VPCS = '/projects/:project_id/vpcs';
const VPC = `${VPCS}/:vpc_id`;
const PEERINGS = `${VPC}/peerings`;
const PEERING = `${PEERINGS}/:peering_id`;
const ofVpc = Type.Object({ project_id: Type.String(), vpc_id: Type.String() });
const ofPeering = Type.Object({
  project_id: Type.String(),
  vpc_id: Type.String(),
  peering_id: Type.String(),
});
const vpcs = resourceSchemas({ tag: 'VPCs', ofMany: ofProject, ofOne: ofVpc, document: VpcSchema });
const peerings = resourceSchemas({
  tag: 'VPCs',
  ofMany: ofVpc,
  ofOne: ofPeering,
  document: PeeringSchema,
});

export function vpcRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(VPCS, vpcs.list('listVpcs', 'List all VPCs'), async (request) =>
    (await listVpcs(store.db, request.key.project_id)).map(vpcDocument),
  );

  api.post(VPCS, vpcs.create(CreateVpcBody, 'createVpc', 'Create a VPC'), async (request, reply) =>
    answer(reply, await createVpc(context, callerOf(request), request.body)),
  );

  api.get(VPC, vpcs.get('getVpc', 'Get a VPC'), async (request) => vpcDocument(request.vpc));

  api.delete(
    VPC,
    vpcs.delete('deleteVpc', 'Delete a VPC without services and peerings'),
    async (request, reply) =>
      answer(reply, await deleteVpc(context, callerOf(request), request.vpc.id)),
  );

  api.post(
    `${VPC}/rename`,
    {
      schema: {
        operationId: 'renameVpc',
        summary: 'Rename a VPC',
        tags: ['VPCs'],
        params: ofVpc,
        body: Ref(RenameVpcBody),
        response: { 200: Ref(RenamedVpcSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await renameVpc(context, callerOf(request), request.vpc.id, request.body.name)),
  );

  api.get(PEERINGS, peerings.list('listPeerings', 'List the peerings of a VPC'), async (request) =>
    (await listPeerings(store.db, request.vpc.id)).map(peeringDocument),
  );

  api.post(
    PEERINGS,
    peerings.create(
      CreatePeeringBody,
      'createPeering',
      'Create a VPC peering',
      'Inside a project it is active at once. Between projects it is pending until the ' +
        'other side requests the same peering. An impossible peering is invalid, ' +
        'with the reason in error_message.',
    ),
    async (request, reply) =>
      answer(reply, await createPeering(context, callerOf(request), request.vpc.id, request.body)),
  );

  api.get(PEERING, peerings.get('getPeering', 'Get a VPC peering'), async (request) =>
    peeringDocument(request.peering),
  );

  api.delete(
    PEERING,
    peerings.delete(
      'deletePeering',
      'Delete a VPC peering, on both sides',
      'Open connections through it end.',
    ),
    async (request, reply) =>
      answer(
        reply,
        await deletePeering(context, callerOf(request), request.vpc.id, request.peering.id),
      ),
  );
}

// Allow lists, and the services that they are attached to.

const ALLOW_LISTS = '/projects/:project_id/allow-lists';
const ALLOW_LIST = `${ALLOW_LISTS}/:allow_list_id`;
const allowLists = resourceSchemas({
  tag: 'allow lists',
  ofMany: ofProject,
  ofOne: Type.Object({ project_id: Type.String(), allow_list_id: Type.String() }),
  document: AllowListSchema,
});

export function allowListRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    ALLOW_LISTS,
    allowLists.list('listAllowLists', 'List the allow lists, oldest first'),
    async (request) =>
      (await listAllowLists(store.db, request.key.project_id)).map(allowListDocument),
  );

  api.get(ALLOW_LIST, allowLists.get('getAllowList', 'Get an allow list'), async (request) =>
    allowListDocument(
      await readAllowList(store.db, request.key.project_id, request.params.allow_list_id),
    ),
  );

  api.post(
    ALLOW_LISTS,
    allowLists.create(
      CreateAllowListBody,
      'createAllowList',
      'Create an allow list',
      'The networks whose clients may connect to the services that have the list.',
    ),
    async (request, reply) =>
      answer(reply, await createAllowList(context, callerOf(request), request.body)),
  );

  api.patch(
    ALLOW_LIST,
    allowLists.update(
      UpdateAllowListBody,
      'updateAllowList',
      'Change an allow list',
      'Fields that are left out stay. The services of the list follow without a restart; ' +
        'sessions of clients that are no longer allowed are terminated.',
    ),
    async (request, reply) => {
      const { allow_list_id: id } = request.params;
      return answer(reply, await updateAllowList(context, callerOf(request), id, request.body));
    },
  );

  api.delete(
    ALLOW_LIST,
    allowLists.delete('deleteAllowList', 'Delete an allow list that no service has'),
    async (request, reply) =>
      answer(
        reply,
        await deleteAllowList(context, callerOf(request), request.params.allow_list_id),
      ),
  );

  attachmentRoutes(api, context);
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
          tags: ['allow lists'],
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
