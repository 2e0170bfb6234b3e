/** Replicas of a service: their number, switchover and drill. */
import { ApiError, type DrillKind } from '@howdah/contract';
import { refuseWithSleep } from './auto-suspend.ts';
import { noteOfSlots, type Leaving } from '../domain/service/not-carried.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeOf } from '../domain/service/spec.ts';
import type { Region } from '../engine/regions.ts';
import type { Caller } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { readSlotFates } from './not-carried.ts';
import { refuseImpossible } from './regions.ts';
import { type Accepted, changeUnderRules } from './service-rules.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import type { Tx } from '../store/tables.ts';

/** Checks the counts of a request. */
export function replicaCountsOrRefuse(
  region: Region,
  replicaCount: number,
  syncReplicaCount: number,
): { replica_count: number; sync_replica_count: number } {
  if (syncReplicaCount > replicaCount) {
    throw new ApiError(
      'INVALID_REQUEST',
      `sync_replica_count: found ${syncReplicaCount} of ${replicaCount} replicas; ` +
        'allowed: 0 to replica_count',
    );
  }
  if (replicaCount > 0) refuseImpossible(region, 'setHA', 'replica_count');
  return { replica_count: replicaCount, sync_replica_count: syncReplicaCount };
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
    refuseWithSleep(service, 'replica');
    await keepWithinLimits(
      tx,
      caller.projectId,
      weightOf(sizeOf(service), replicas.replica_count - service.replica_count),
    );
    // A service whose replicas were removed keeps its gateway: removing it would end sessions.
    return { ...replicas, has_gateway: true };
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

export async function switchOver(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
): Promise<Accepted> {
  const decide = (service: ServiceRow): ServiceChange => {
    refuseWithoutReplicas(service, 'switchover');
    return { switchover: true };
  };
  const said = await sayOfSlots(context.regions.of(code), id, 'switchover');
  return changeUnderRules(context, caller, id, 'switchover', decide, 'switchover', said);
}

export async function startDrill(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
  kind: DrillKind,
): Promise<Accepted> {
  const decide = (service: ServiceRow): ServiceChange => {
    refuseWithoutReplicas(service, 'drill');
    return { drill: kind };
  };
  const said = await sayOfSlots(context.regions.of(code), id, kind);
  return changeUnderRules(context, caller, id, 'drill', decide, 'drill', said);
}

/** The parts of an answer about the slots of a service whose primary changes. */
async function sayOfSlots(
  region: Region,
  id: string,
  kind: 'switchover' | 'failover',
): Promise<{ note?: string; leaving: Leaving }> {
  const slots = await readSlotFates(region, id);
  const note = noteOfSlots(slots);
  return { leaving: { kind, slots }, ...(note === undefined ? {} : { note }) };
}
