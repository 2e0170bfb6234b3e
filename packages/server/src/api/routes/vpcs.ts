import {
  CreatePeeringBody,
  CreateVpcBody,
  PeeringSchema,
  Ref,
  RenamedVpcSchema,
  RenameVpcBody,
  VpcSchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import { answer, callerOf } from '../changes.ts';
import { peeringDocument, vpcDocument } from '../../domain/vpc/document.ts';
import { createPeering, deletePeering } from '../../services/peerings.ts';
import { createVpc, deleteVpc, renameVpc } from '../../services/vpcs.ts';
import { listPeerings } from '../../store/peerings.ts';
import { listVpcs } from '../../store/vpcs.ts';
import type { ApiContext, App } from '../context.ts';
import { ofProject } from './schemas.ts';

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
