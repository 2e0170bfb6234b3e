/**
 * Peerings of VPCs. A provider answers for the other side: it knows the account that a request
 * names. There is one, for the projects of this installation. VPCs elsewhere (an account of a
 * cloud) would need another one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ApiError,
  isId,
  MAX_PEERINGS,
  type CreatePeeringBody,
  type PeeringStatus,
} from '@howdah/contract';
import { peeringDocument, regionNameOf, MADE_POLL_MS, vpcNotFound } from './vpcs.ts';
import { overlap, trustedCidr } from '../lib/cidr.ts';
import type { Store } from '../store/database.ts';
import type { Db, Tx } from '../store/tables.ts';
import { findProject } from '../store/projects.ts';
import {
  changePeering,
  deletePeeringRow,
  findPeering,
  findPeeringBetween,
  insertPeering,
  listPeerings,
  listPeers,
  type PeeringRow,
  changeVpcs,
  lockVpcs,
  type VpcRow,
} from '../store/vpcs.ts';
import { amendAnswer, answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import { ANSWER_WITHIN_MS } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { findRegion } from './regions.ts';

/**
 * Answers for the VPCs of some accounts. Every call is part of the transaction that records the
 * request.
 */
export type PeeringProvider = {
  /** Whether it answers for an account. */
  knows(db: Db, accountId: string): Promise<boolean>;
  /**
   * Other VPCs of this installation that the request concerns; they are locked with the
   * requesting VPC.
   */
  concerns(request: CreatePeeringBody): readonly string[];
  /** Records a request. @param locked the VPCs that it {@link concerns}, if they exist */
  request(
    tx: Tx,
    vpc: VpcRow,
    request: PeeringRequest,
    locked: ReadonlyMap<string, VpcRow>,
  ): Promise<PeeringRow>;
  /** Ends a peering, on both sides. */
  end(tx: Tx, vpc: VpcRow, peering: PeeringRow, locked: ReadonlyMap<string, VpcRow>): Promise<void>;
};

/** A request for a peering; `region`: the region here that peer_region_code names, by its code. */
type PeeringRequest = CreatePeeringBody & { region: string | undefined };

/** The context of calls on peerings. */
export type PeeringContext = ControlContext & { peeringProviders: readonly PeeringProvider[] };

async function providerFor(
  { peeringProviders }: PeeringContext,
  db: Db,
  accountId: string,
): Promise<PeeringProvider> {
  for (const provider of peeringProviders) if (await provider.knows(db, accountId)) return provider;
  return nobody;
}

/** Requests a peering, and waits a moment for one that both sides have requested. */
export async function createPeering(
  context: PeeringContext,
  caller: Caller,
  vpcId: string,
  body: CreatePeeringBody,
): Promise<Outcome> {
  const { store } = context;
  const { row } = await makeChange(store, caller, async (tx) => {
    const provider = await providerFor(context, tx, body.peer_account_id);
    const locked = await lockVpcs(tx, [vpcId, ...provider.concerns(body)]);
    const vpc = locked.get(vpcId);
    if (vpc === undefined) throw vpcNotFound(vpcId);
    context.regions.of(vpc.region_code);
    if ((await listPeerings(tx, vpcId)).length >= MAX_PEERINGS)
      throw new ApiError(
        'LIMIT_EXCEEDED',
        `the VPC ${vpcId} has ${MAX_PEERINGS} peerings, the maximum; delete one first`,
      );
    const region = findRegion(context.regions, body.peer_region_code)?.code;
    const row = await provider.request(tx, vpc, { ...body, region }, locked);
    return { ...answerWith(peeringDocument(row)), row };
  });
  const made = answerWith(peeringDocument(await untilMade(store, row)));
  await amendAnswer(store, caller, made);
  return made;
}

/** An approved peering is answered once it is "active": clients can connect from then on. */
async function untilMade(store: Store, row: PeeringRow): Promise<PeeringRow> {
  let now = row;
  const endMs = Date.now() + ANSWER_WITHIN_MS;
  while (now.status === 'approved' && Date.now() < endMs) {
    now = (await findPeering(store.db, row.vpc_id, row.id)) ?? { ...now, status: 'disabled' };
    await sleep(MADE_POLL_MS);
  }
  return now;
}

/** Deletes a peering on both sides. */
export function deletePeering(
  context: PeeringContext,
  caller: Caller,
  vpcId: string,
  id: string,
): Promise<Outcome> {
  return makeChange(context.store, caller, async (tx) => {
    const found = await findPeering(tx, vpcId, id);
    if (found === null) throw peeringNotFound(id);
    const provider = await providerFor(context, tx, found.peer_account_id);
    const locked = await lockVpcs(tx, [vpcId, ...provider.concerns(found)]);
    const [vpc, peering] = [locked.get(vpcId), await findPeering(tx, vpcId, id)];
    if (vpc === undefined || peering === null) throw peeringNotFound(id);
    context.regions.of(vpc.region_code);
    await provider.end(tx, vpc, peering, locked);
    return { operationId: null };
  });
}

export function peeringNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no peering with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/vpcs/{vpc_id}/peerings lists them',
  );
}

const record = (
  tx: Tx,
  vpc: VpcRow,
  request: CreatePeeringBody,
  status: PeeringStatus,
  problem: string | null = null,
  asked = true,
): Promise<PeeringRow> =>
  insertPeering(tx, {
    vpc_id: vpc.id,
    peer_account_id: request.peer_account_id,
    peer_region_code: request.peer_region_code,
    peer_vpc_id: request.peer_vpc_id,
    asked,
    status,
    ...(problem === null ? {} : { error_message: problem }),
  });

/** Answers for accounts that no provider knows. */
const nobody: PeeringProvider = {
  knows: () => Promise.resolve(true),
  concerns: () => [],
  request: (tx, vpc, request) =>
    record(
      tx,
      vpc,
      request,
      'invalid',
      `no provider for account ${request.peer_account_id}: ` +
        'VPCs are peered with those of projects of this installation; ' +
        `peer_account_id is the id of one, like ${vpc.project_id}`,
    ),
  end: (tx, _vpc, peering) => deletePeeringRow(tx, peering.id),
};

/**
 * Answers for the projects of this installation. A peering of two of them is two rows, one on each
 * side.
 */
export const ownProjects: PeeringProvider = {
  knows: async (db, accountId) => isId(accountId) && (await findProject(db, accountId)) !== null,
  concerns: ({ peer_vpc_id }) => [peer_vpc_id],

  request: async (tx, vpc, request, locked) => {
    const peer = locked.get(request.peer_vpc_id);
    const problem = await problemWith(tx, vpc, request, peer);
    if (problem !== null || peer === undefined) return record(tx, vpc, request, 'invalid', problem);
    const own = await findPeeringBetween(tx, vpc.id, peer);
    if (own?.asked === true)
      throw new ApiError(
        'CONFLICT',
        `the VPC ${vpc.id} has asked for this already: peering ${own.id}, which is ${own.status}`,
      );
    // Inside a project the other side exists already, and is now requested as well.
    if (own !== null) return changePeering(tx, own.id, { asked: true });
    const inside = peer.project_id === vpc.project_id;
    const mirror = await findPeeringBetween(tx, peer.id, vpc);
    if (mirror === null && !inside) return record(tx, vpc, request, 'pending');
    const mine = await record(tx, vpc, request, 'approved');
    if (mirror === null) await record(tx, peer, requestFor(vpc), 'approved', null, false);
    else await changePeering(tx, mirror.id, { status: 'approved' });
    await changeVpcs(tx, [vpc.id, peer.id]);
    return mine;
  },

  end: async (tx, vpc, peering, locked) => {
    const peer = locked.get(peering.peer_vpc_id);
    await deletePeeringRow(tx, peering.id);
    if (peer === undefined || (peering.status !== 'approved' && peering.status !== 'active'))
      return;
    const mirror = await findPeeringBetween(tx, peer.id, vpc);
    if (mirror !== null) {
      if (peer.project_id === vpc.project_id) await deletePeeringRow(tx, mirror.id);
      else
        await changePeering(tx, mirror.id, {
          status: 'disabled',
          error_message:
            `project ${vpc.project_id} has ended this peering; ` +
            'delete it, and ask again to have it back',
        });
    }
    await changeVpcs(tx, [vpc.id, peer.id]);
  },
};

function requestFor(vpc: VpcRow): CreatePeeringBody {
  return {
    peer_account_id: vpc.project_id,
    peer_region_code: regionNameOf(vpc),
    peer_vpc_id: vpc.id,
  };
}

/**
 * Why two VPCs cannot be peered; null: they can. The text must not reveal networks of the other
 * project.
 */
async function problemWith(
  tx: Tx,
  vpc: VpcRow,
  request: PeeringRequest,
  peer: VpcRow | undefined,
): Promise<string | null> {
  if (request.peer_vpc_id === vpc.id) return 'peer_vpc_id is this VPC itself; name another one';
  if (request.region !== vpc.region_code)
    return (
      `peer_region_code is ${request.peer_region_code}; ` +
      `a VPC in ${vpc.region_code} is peered with VPCs in ${vpc.region_code} only`
    );
  if (
    peer === undefined ||
    peer.project_id !== request.peer_account_id ||
    peer.region_code !== request.region
  )
    return (
      `project ${request.peer_account_id} has no VPC ${request.peer_vpc_id} in ` +
      `${request.peer_region_code}, or has deleted it; ask its owner for the id`
    );
  const [mine, theirs] = [trustedCidr(vpc.cidr), trustedCidr(peer.cidr)];
  if (overlap(mine, theirs))
    return (
      `the networks overlap: the other VPC has addresses of ${vpc.cidr}, this VPC's own; ` +
      'peer VPCs whose networks differ'
    );
  const peerings = await listPeerings(tx, peer.id);
  if (peerings.length >= MAX_PEERINGS && (await findPeeringBetween(tx, peer.id, vpc)) === null)
    return (
      `the other VPC has ${MAX_PEERINGS} peerings, the maximum; ` +
      'its owner has to delete one first'
    );
  const near = (await listPeers(tx, vpc.id)).find(
    ({ id, cidr }) => id !== peer.id && overlap(trustedCidr(cidr), theirs),
  );
  if (near !== undefined)
    return (
      `the network of the other VPC overlaps that of the VPC ${near.id}, ` +
      `which this one reaches by the peering ${near.peering}; delete that one first`
    );
  const far = (await listPeers(tx, peer.id)).find(
    ({ id, cidr }) => id !== vpc.id && overlap(trustedCidr(cidr), mine),
  );
  if (far !== undefined)
    return (
      `the other VPC is peered with a network that overlaps ${vpc.cidr}; ` +
      'its owner has to end that peering first'
    );
  return null;
}
