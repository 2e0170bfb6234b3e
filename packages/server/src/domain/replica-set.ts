/** How a read replica set follows the service that it belongs to. */
import {
  type OperationKind,
  type ReadReplicaSet,
  REPLICA_SET_STATUS,
  type SetPurpose,
} from '@howdah/contract';
import type { ServiceChange, ServiceRow } from './service/row.ts';
import type { OperationRow } from './operation.ts';
import { vpcEndpointOf } from './service/document.ts';
import { poolerSpec } from './service/spec.ts';

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

// The document of a read replica set, as the API returns it.

export function replicaSetDocument(row: ServiceRow): ReadReplicaSet {
  const [pooler, vpcEndpoint] = [poolerSpec(row), vpcEndpointOf(row)];
  return {
    id: row.id,
    name: row.name,
    nodes: row.nodes,
    cpu_millis: row.cpu_millis ?? 0,
    memory_gbs: row.memory_gbs ?? 0,
    endpoint: { host: row.host, port: row.port },
    ...(pooler === null ? {} : { connection_pooler: { endpoint: pooler } }),
    ...(vpcEndpoint === null ? {} : { vpc_endpoint: vpcEndpoint }),
    metadata: { environment: row.environment },
    purpose: row.purpose,
    status: REPLICA_SET_STATUS[row.status],
  };
}

// The settings of nodes by the purpose of their read replica set.

/** How long a report may hold up the replay of a change that is in its way. */
const REPORT_DELAY = '10min';

/**
 * The settings in which nodes differ from other servers. All take effect at a reload ([PG] 19.6.3).
 *
 * With feedback, the primary keeps the rows that queries of the nodes see. Changes that lock a
 * table, as TRUNCATE and the end of VACUUM, still meet them: those wait for the delay. The primary
 * has to know of a query before it removes a row, so nodes report every second.
 */
export function settingsOfPurpose(purpose: SetPurpose): Record<string, string> {
  switch (purpose) {
    case 'reports':
      return {
        hot_standby_feedback: 'on',
        wal_receiver_status_interval: '1s',
        max_standby_streaming_delay: REPORT_DELAY,
        max_standby_archive_delay: REPORT_DELAY,
      };
    case 'lookups':
      return {};
  }
}
