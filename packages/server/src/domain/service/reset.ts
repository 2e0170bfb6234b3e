/** Whether a service can be reset to the data of its parent. Pure. */
import { ALLOWED, refusal } from '@howdah/contract';
import type { ServiceRow } from './row.ts';

/**
 * The facts of a service that decide whether it can be reset. `isShared`: whether it has databases
 * that are leases.
 */
export type Resettable = Pick<
  ServiceRow,
  | 'id'
  | 'name'
  | 'origin'
  | 'pg_version'
  | 'read_replica_sets'
  | 'recovery'
  | 'region_code'
  | 'storage_gb'
  | 'upgrade'
> & { readonly isShared: boolean };

/** The facts of its parent. `usedGb`: the disk space of its data. */
export type ResetParent = Pick<
  ServiceRow,
  'deleted_at' | 'deleting' | 'id' | 'name' | 'pg_version' | 'region_code' | 'status'
> & { readonly usedGb: number };

export const NO_FORK = 'it is no fork, and has no parent; howdah service fork makes one of it';

/**
 * Why a service cannot be reset, and which command helps; null: it can.
 *
 * @param parent null: it is gone for good
 * @param isNow whether it gets the present state of its parent
 */
export function whyNotReset(
  service: Resettable,
  parent: ResetParent | null,
  isNow: boolean,
): string | null {
  return whyNotItself(service) ?? whyNotFrom(service, parent, isNow);
}

function whyNotItself({
  isShared,
  origin,
  read_replica_sets: sets,
  recovery,
  upgrade,
}: Resettable): string | null {
  if (origin === null) return NO_FORK;
  if (isShared)
    return (
      'leases have databases in it, which a reset would drop; howdah lease return LEASE returns ' +
      `one, and howdah lease take ${origin.parent} --reset database has the data that its parent ` +
      'has now'
    );
  if (sets.length > 0)
    return (
      'its read replica sets follow its present data: ' +
      `${sets.map(({ name }) => name).join(', ')}; delete them first (howdah replica-set delete)`
    );
  if (recovery !== null || (upgrade !== null && upgrade.problem === null))
    return 'its data is being replaced already: start it, and wait until it is READY';
  return null;
}

function whyNotFrom(
  { origin, name, pg_version: version, region_code: region, storage_gb: storageGb }: Resettable,
  parent: ResetParent | null,
  isNow: boolean,
): string | null {
  if (parent === null)
    return `its parent ${origin?.parent ?? ''} is gone for good; fork another service instead`;
  const who = `its parent ${parent.name} (${parent.id})`;
  if (parent.deleted_at !== null || parent.deleting)
    return `${who} was deleted; howdah service restore ${parent.id} brings it back for a while`;
  if (parent.region_code !== region)
    return `${who} is in the region ${parent.region_code}, and it is in ${region}; fork it again`;
  if (parent.pg_version !== version)
    return (
      `${who} is of PostgreSQL ${parent.pg_version}, and it is of ${version}; fork it again ` +
      `(howdah service fork ${parent.id})`
    );
  const action = isNow ? 'forkNow' : 'forkPast';
  if (ALLOWED[parent.status][action] !== 'accept')
    return `${who}: ${refusal(action, parent.status)}`;
  if (parent.usedGb > storageGb)
    return (
      `the data of ${who} takes ${parent.usedGb.toFixed(2)} GB, and its storage is ` +
      `${storageGb} GB; first howdah service resize ${name} ` +
      `--storage-gb ${Math.ceil(parent.usedGb)}`
    );
  return null;
}
