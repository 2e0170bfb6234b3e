/**
 * Changes of VPCs: check the rules, record the desired state in one transaction, notify.
 * reconcile/vpcs.ts does the rest.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, MAX_VPCS, type CreateVpcBody, type Peering, type Vpc } from '@howdah/contract';
import type { Region } from '../engine/regions.ts';
import { overlap, serviceCapacity, trustedCidr, vpcCidrProblem } from '../lib/cidr.ts';
import type { Store } from '../store/database.ts';
import type { Tx } from '../store/tables.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { changeService, lockService } from '../store/services.ts';
import {
  listPeerings,
  refusePeeringRequests,
  changeVpcs,
  insertVpc,
  lockVpcs,
  setVpcName,
  servicesIn,
  vpcIsMade,
  vpcsToCompare,
  readAllowedNetworks,
  releaseAddresses,
  takeAddress,
} from '../store/vpcs.ts';
import { readNetworksOfList } from '../store/allow-lists.ts';
import { countOfProject } from '../store/resources.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import { ANSWER_WITHIN_MS } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { refuseImpossible, regionOrRefuse } from './regions.ts';

/** Creates a VPC, and waits a moment until the engine has made it. */
export async function createVpc(
  { store, regions }: ControlContext,
  caller: Caller,
  body: CreateVpcBody,
): Promise<Outcome> {
  const problem = vpcCidrProblem(body.cidr);
  if (problem !== null) throw new ApiError('INVALID_REQUEST', problem);
  const { region, alias } = regionOrRefuse(regions, body.region_code);
  refuseImpossible(region, 'attachToVPC', 'VPCs');
  const made = await makeChange(store, caller, async (tx) => {
    await refuseOverlap(tx, caller.projectId, region, body.cidr);
    const row = await insertVpc(tx, {
      project_id: caller.projectId,
      region_code: region.code,
      region_alias: alias,
      name: body.name,
      cidr: body.cidr,
    });
    return { ...answerWith(vpcDocument(row)), id: row.id };
  });
  await untilMade(store, made.id);
  return made;
}

/** Refuses one VPC too many, and a network that overlaps another one of the project. */
async function refuseOverlap(
  tx: Tx,
  projectId: string,
  region: Region,
  cidr: string,
): Promise<void> {
  const vpcs = await vpcsToCompare(tx, projectId, region.code);
  const count = await countOfProject(tx, 'vpcs', projectId);
  if (count >= MAX_VPCS)
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `VPCs: the project has ${count}, of ${MAX_VPCS} that are allowed; delete one first`,
    );
  const other = vpcs.find((vpc) => overlap(trustedCidr(cidr), trustedCidr(vpc.cidr)));
  if (other !== undefined) {
    throw new ApiError(
      'CONFLICT',
      `cidr: ${cidr} overlaps ${other.cidr} of the VPC ${other.id} (${other.name}); ` +
        'take another network, or delete that VPC',
    );
  }
}

/**
 * A VPC can be used once it is answered as created. If that takes longer, it is created all the
 * same.
 */
async function untilMade(store: Store, id: string): Promise<void> {
  const endMs = Date.now() + ANSWER_WITHIN_MS;
  while (Date.now() < endMs && !(await vpcIsMade(store.db, id))) await sleep(MADE_POLL_MS);
}

/** Deletes a VPC without services and peerings. Deleted services leave it. */
export function deleteVpc(
  { store, regions }: ControlContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    // Services before VPCs: the order of all transactions that lock both.
    for (const service of await servicesIn(tx, id))
      if (service.deleted) await expel(tx, service.id);
    const vpc = (await lockVpcs(tx, [id])).get(id);
    if (vpc === undefined) throw vpcNotFound(id);
    regions.of(vpc.region_code);
    // The lock keeps new services out: this list is complete.
    await refuseOccupied(tx, id);
    await refusePeeringRequests(
      tx,
      vpc,
      `the VPC ${id} of project ${vpc.project_id} was deleted; delete this peering`,
    );
    await changeVpcs(tx, [id], { deleting: true });
    return { operationId: null };
  });
}

async function refuseOccupied(tx: Tx, id: string): Promise<void> {
  const services = await servicesIn(tx, id);
  const peerings = await listPeerings(tx, id);
  if (services.length === 0 && peerings.length === 0) return;
  const things = [
    ...services.map((service) => `the service ${service.id} (${service.name})`),
    ...peerings.map((peering) => `the peering ${peering.id} (${peering.status})`),
  ];
  const shown =
    things.length > 10 ? [...things.slice(0, 10), `${things.length - 10} more`] : things;
  throw new ApiError(
    'CONFLICT',
    `the VPC ${id} has ${shown.join(', ')}; ` +
      'detach or delete its services and delete its peerings first',
  );
}

/**
 * Takes a deleted service out of its VPC. It can still be restored, but not into a VPC that is
 * gone, and it must not become public unasked: it comes back paused.
 */
async function expel(tx: Tx, serviceId: string): Promise<void> {
  const locked = await lockService(tx, serviceId);
  if (locked === null || locked.service.deleted_at === null) return;
  const left = await leaveVpc(tx, locked.service);
  await changeService(tx, locked.service, { ...left, power: 'paused' }, locked.operation);
  await releaseAddresses(tx, serviceId, null);
}

export function renameVpc(
  { store }: ControlContext,
  caller: Caller,
  id: string,
  name: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const row = await setVpcName(tx, id, name);
    if (row === null) throw vpcNotFound(id);
    return answerWith({ ...vpcDocument(row), message: `the VPC is called ${name}` });
  });
}

/** How often an answer that waits for the engine looks. */
export const MADE_POLL_MS = 10;

/**
 * Attaches a locked service to a VPC of a project. It locks the VPC after the service.
 *
 * @throws ApiError when there is no such VPC, or it is full
 */
export async function joinVpc(
  tx: Tx,
  region: Region,
  projectId: string,
  service: Pick<ServiceRow, 'id' | 'region_code'>,
  vpcId: string,
): Promise<ServiceChange> {
  refuseImpossible(region, 'attachToVPC', 'vpc_id');
  const vpc = (await lockVpcs(tx, [vpcId])).get(vpcId);
  if (vpc === undefined || vpc.project_id !== projectId) throw vpcNotFound(vpcId);
  if (vpc.region_code !== service.region_code)
    throw new ApiError(
      'INVALID_REQUEST',
      `vpc_id: the VPC ${vpcId} is in ${vpc.region_code}, the service in ${service.region_code}`,
    );
  const allowed_networks = await readAllowedNetworks(tx, vpc);
  if (!region.engine.capabilities.vpc.isNetwork)
    return { vpc_id: vpc.id, vpc_address: null, allowed_networks };
  const address = await takeAddress(tx, vpc, service.id);
  if (address === null) {
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `vpc_id: the VPC ${vpc.id} (${vpc.cidr}) is full: all ` +
        `${serviceCapacity(trustedCidr(vpc.cidr))} addresses that services can have are taken, ` +
        'deleted ones keep theirs as long as they can be restored; detach or delete one, or ' +
        'take a VPC with a larger network',
    );
  }
  await changeVpcs(tx, [vpc.id]);
  return { vpc_id: vpc.id, vpc_address: address, allowed_networks };
}

/**
 * Detaches a locked service from its VPC: then its allow list holds, if it has one. It keeps its
 * address in the VPC until the engine has moved it.
 */
export async function leaveVpc(tx: Tx, service: ServiceRow): Promise<ServiceChange> {
  const allowed_networks = await readNetworksOfList(tx, service.allow_list_id);
  return { vpc_id: null, vpc_address: null, allowed_networks };
}

export function vpcNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no VPC with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/vpcs lists them',
  );
}

// VPCs and peerings as the API answers them.

/** The row of a peering, as far as its document needs it. */
type PeeringColumns = Pick<
  Peering,
  'id' | 'peer_account_id' | 'peer_region_code' | 'peer_vpc_id' | 'status'
> & { error_message: string | null; provisioned_id: string | null };

/** The name of a VPC's region, as it was asked for. */
export function regionNameOf(vpc: { region_code: string; region_alias: string | null }): string {
  return vpc.region_alias ?? vpc.region_code;
}

type VpcColumns = Pick<Vpc, 'id' | 'name' | 'cidr' | 'region_code'> & {
  region_alias: string | null;
};

export function vpcDocument(row: VpcColumns): Vpc {
  return { id: row.id, name: row.name, cidr: row.cidr, region_code: regionNameOf(row) };
}

export function peeringDocument(row: PeeringColumns): Peering {
  return {
    id: row.id,
    peer_account_id: row.peer_account_id,
    peer_region_code: row.peer_region_code,
    peer_vpc_id: row.peer_vpc_id,
    status: row.status,
    ...(row.error_message === null ? {} : { error_message: row.error_message }),
    ...(row.provisioned_id === null ? {} : { provisioned_id: row.provisioned_id }),
  };
}
