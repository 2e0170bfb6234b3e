/** How a read replica set follows the service that it belongs to. */
import type { OperationKind } from '@howdah/contract';
import type { ServiceChange, ServiceRow } from '../service/row.ts';
import type { OperationRow } from '../operation/row.ts';

/**
 * A change of one of these columns of a service is passed on to its sets. Its nodes are made again
 * from a primary of another major version. A larger primary, or
 * one that loads more libraries, needs other settings of its followers.
 */
export const INHERITED_COLUMNS = [
  'power',
  'deleting',
  'deleted_at',
  'cpu_millis',
  'cpu_bound',
  'preload',
  'pg_version',
  'restarts',
  'vpc_id',
  'allow_list_id',
] as const satisfies (keyof ServiceChange)[];

/**
 * The operation by which a set follows its service; null: none is needed, or the
 * current one goes on.
 */
export function inheritedOperation(
  set: ServiceRow,
  parent: ServiceRow,
  power: ServiceRow['power'],
  underWay: OperationRow | null,
): OperationKind | null {
  if (power !== set.power) return power === 'running' ? 'start' : 'stop';
  if (underWay !== null || parent.deleted_at !== null) return null;
  const isOlder = set.pg_version !== null && set.pg_version !== parent.pg_version;
  if (isOlder && power === 'running') return 'upgrade';
  if (set.restarts !== parent.restarts && power === 'running') return 'restart';
  if (set.vpc_id !== parent.vpc_id) return parent.vpc_id === null ? 'detachFromVPC' : 'attachToVPC';
  if (set.allow_list_id === parent.allow_list_id) return null;
  return parent.allow_list_id === null ? 'detachFromAllowList' : 'attachToAllowList';
}
