/** Replicas of a service: their number, switchover and drill. */
import { ApiError, type DrillKind, MAX_REPLICAS } from '@howdah/contract';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeOf } from '../domain/service/spec.ts';
import type { Region } from '../engine/regions.ts';
import type { Member } from '../engine/spec.ts';
import type { Caller } from './change.ts';
import { reservePort } from './common.ts';
import type { ControlContext } from './context.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { type Accepted, changeUnderRules } from './service-rules.ts';
import type { Tx } from '../store/tables.ts';

/** Checks the counts of a request. */
export function replicaCountsOrRefuse(
  { engine }: Region,
  replicaCount: number,
  syncReplicaCount: number,
): { replica_count: number; sync_replica_count: number } {
  if (syncReplicaCount > replicaCount) {
    throw new ApiError(
      'INVALID_REQUEST',
      `sync_replica_count: found ${syncReplicaCount} of ${replicaCount} replicas; allowed: 0 to replica_count`,
    );
  }
  const { gateway } = engine.capabilities;
  if (replicaCount > 0 && 'missing' in gateway)
    throw new ApiError('UNAVAILABLE_HERE', `replica_count: ${gateway.missing}`);
  return { replica_count: replicaCount, sync_replica_count: syncReplicaCount };
}

/**
 * The members of a service with this number of replicas: existing ones first, the primary always.
 * A service whose replicas were removed keeps its gateway, and so one member.
 */
export async function chooseMembers(
  region: Region,
  tx: Tx,
  service: ServiceRow,
  replicaCount: number,
): Promise<Member[]> {
  const there = service.members.map(({ n }) => n);
  const others = Array.from({ length: MAX_REPLICAS + 1 }, (_, n) => n).filter(
    (n) => !there.includes(n),
  );
  const wanted = [...new Set([service.primary_member, ...there, ...others])].slice(
    0,
    replicaCount + 1,
  );
  const members: Member[] = [];
  for (const n of wanted.toSorted((a, b) => a - b)) {
    const besides = [...members.map(({ port }) => port), service.pooler_port ?? 0];
    members.push(
      service.members.find((member) => member.n === n) ?? {
        n,
        port: await reservePort(tx, region, besides),
      },
    );
  }
  return members;
}

export async function setReplicas(
  context: ControlContext,
  caller: Caller,
  id: string,
  body: { replica_count?: number; sync_replica_count?: number },
): Promise<Accepted> {
  if (body.replica_count === undefined && body.sync_replica_count === undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      'replica_count, sync_replica_count: both missing; send at least one of them',
    );
  const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
    const region = context.regions.of(service.region_code);
    const replicas = replicaCountsOrRefuse(
      region,
      body.replica_count ?? service.replica_count,
      body.sync_replica_count ?? service.sync_replica_count,
    );
    if (
      replicas.replica_count === service.replica_count &&
      replicas.sync_replica_count === service.sync_replica_count
    )
      return null;
    await keepWithinLimits(
      tx,
      caller.projectId,
      weightOf(sizeOf(service), replicas.replica_count - service.replica_count),
    );
    return {
      ...replicas,
      members: await chooseMembers(region, tx, service, replicas.replica_count),
    };
  };
  return changeUnderRules(context, caller, id, 'setHA', decide, 'setHA');
}

export function refuseWithoutReplicas(service: ServiceRow, action: 'switchover' | 'drill'): void {
  if (service.replica_count === 0)
    throw new ApiError(
      'INVALID_STATE',
      `cannot ${action} a service without replicas: give it one first (setHA with replica_count 1)`,
    );
}

export function switchOver(context: ControlContext, caller: Caller, id: string): Promise<Accepted> {
  return changeUnderRules(
    context,
    caller,
    id,
    'switchover',
    (service) => {
      refuseWithoutReplicas(service, 'switchover');
      return { leave_member: service.primary_member };
    },
    'switchover',
  );
}

export function startDrill(
  context: ControlContext,
  caller: Caller,
  id: string,
  body: { kind: DrillKind; confirm?: string },
): Promise<Accepted> {
  return changeUnderRules(
    context,
    caller,
    id,
    'drill',
    (service) => {
      refuseWithoutReplicas(service, 'drill');
      if (
        body.kind === 'failover' &&
        service.environment === 'PROD' &&
        body.confirm !== service.name
      )
        throw new ApiError(
          'INVALID_REQUEST',
          `confirm: the primary of a PROD service is killed only with its name: ${service.name}`,
        );
      return { drill: body.kind };
    },
    'drill',
  );
}
