/**
 * The resources that the primary of a service uses: CPU time and memory by the metrics API of the
 * cluster, and the rest by PostgreSQL at the endpoint, as the role of statements. Replicas have no
 * endpoint, so there are no figures of them.
 */
import { Type, type Static } from 'typebox';
import type { QueryResultRow } from 'pg';
import { isOfUsers } from '../../domain/postgres/databases.ts';
import { EngineUnavailable, type Usage } from '../engine.ts';
import { beginReading } from '../statements/run.ts';
import { openSession, SAMPLE_DEADLINE_MS, SAMPLE_WAITS } from '../statements/session.ts';
import { KINDS } from './api/kinds.ts';
import { quantityIn } from './region/nodes.ts';
import { podIn } from './names.ts';
import type { Region } from './region/region.ts';
import type { ClusterState, ServerState } from './cluster/state.ts';
import { serverOf } from './statements.ts';
import { NO_ANSWER, throwUnavailable } from './api/errors.ts';

const POD_METRICS = Type.Object({
  containers: Type.Array(
    Type.Object({ usage: Type.Object({ cpu: Type.String(), memory: Type.String() }) }),
  ),
});

type Counted = Pick<Usage, 'connections' | 'transactions' | 'storageBytes'>;

/**
 * In SQL of any search path, as the session has that of the owner. Sessions of the superuser are
 * those of CloudNativePG. Numbers are read as such: the driver returns `bigint` as text.
 */
const COUNTS = `
  (select pg_catalog.count(*)::pg_catalog.float8 from pg_catalog.pg_stat_activity a
   where a.datid is not null and a.usesysid operator(pg_catalog.<>) 10
     and a.pid operator(pg_catalog.<>) pg_catalog.pg_backend_pid()) as connections,
  (select pg_catalog.sum(d.xact_commit operator(pg_catalog.+) d.xact_rollback)::pg_catalog.float8
   from pg_catalog.pg_stat_database d where ${isOfUsers('d')}) as transactions,
  (select pg_catalog.sum(pg_catalog.pg_database_size(d.oid))::pg_catalog.float8
   from pg_catalog.pg_database d
   where pg_catalog.has_database_privilege(d.oid, 'connect')) as "storageBytes"`;

/** @throws EngineUnavailable */
export async function usageOf(region: Region, id: string): Promise<Usage[]> {
  const cluster = region.cache.cluster(id);
  if (cluster?.primary == null)
    throw new EngineUnavailable(region.cache.staleWhy() === null ? 'it has no primary' : NO_ANSWER);
  const { primary: node } = cluster;
  const resources = await resourcesOf(region, cluster, node);
  return [{ node, ...(await count(region, id)), ...resources, waits: NO_WAITS, lag: null }];
}

/** CPU time and memory of a server of a Cluster. @throws EngineUnavailable */
async function resourcesOf(
  { kube }: Region,
  { namespace, name }: ClusterState,
  instance: number,
): Promise<Pick<Usage, 'cpuMillis' | 'memoryBytes'>> {
  const place = { kind: KINDS.podMetrics, namespace, name: podIn(name, instance) };
  const metrics = await kube.get(place, POD_METRICS).catch(throwUnavailable);
  if (metrics === null) throw new EngineUnavailable(NO_METRICS);
  return resourcesIn(metrics);
}

/** The metrics API has no figures of waits. */
const NO_WAITS = { cpu: null, writes: null };

const NO_METRICS =
  'the metrics API of its Kubernetes cluster (metrics.k8s.io) ' +
  'has no figures of its pod; they come ' +
  'from metrics-server, within a minute: howdah region doctor';

async function count(region: Region, id: string): Promise<Counted> {
  const server = await serverOf(region, id);
  const client = await openSession(server, SAMPLE_DEADLINE_MS, SAMPLE_WAITS);
  try {
    const counted = await beginReading<Counted>(client, server, COUNTS, SAMPLE_DEADLINE_MS);
    if (counted === null) throw new EngineUnavailable('it gave no answer');
    return counted;
  } finally {
    client.connection.stream.destroy();
  }
}

/** The sum over the containers of a pod. */
export function resourcesIn({
  containers,
}: Static<typeof POD_METRICS>): Pick<Usage, 'cpuMillis' | 'memoryBytes'> {
  const sum = (of: 'cpu' | 'memory'): number =>
    containers.reduce((total, { usage }) => total + (quantityIn(usage[of]) ?? 0), 0);
  return { cpuMillis: Math.round(sum('cpu') * 1000), memoryBytes: Math.round(sum('memory')) };
}

// The resources that the nodes of a read replica set use, and how far they are behind. Its endpoint
// connects to any of them, so sessions are opened until each node has answered one: the address of
// a server is that of its pod.

/** In bytes, as the differences of positions are. In SQL of any search path. */
const positionOf = (lsn: string): string =>
  `pg_catalog.pg_wal_lsn_diff(pg_catalog.${lsn}(), '0/0'::pg_catalog.pg_lsn)::pg_catalog.float8`;

const OF_NODE = `${COUNTS},
  pg_catalog.host(pg_catalog.inet_server_addr()) as address,
  ${positionOf('pg_last_wal_replay_lsn')} as position,
  (select extract(epoch from pg_catalog.clock_timestamp() operator(pg_catalog.-)
     pg_catalog.pg_last_xact_replay_timestamp()))::pg_catalog.float8 as age`;

type OfNode = Counted & Readonly<{ address: string; position: number | null; age: number | null }>;

/** Sessions for each node: with so many, hardly ever one of them is missed. */
const TRIES = 6;

/** Nodes that no session has reached have no figures this time. @throws EngineUnavailable */
export async function usageOfSet(
  region: Region,
  id: string,
  cluster: ClusterState,
): Promise<Usage[]> {
  const parent = cluster.desired?.set?.parent;
  const nodes = region.cache.servers(id).filter(({ ready, leaving }) => ready && !leaving);
  if (parent === undefined || nodes.length === 0)
    throw new EngineUnavailable('none of its nodes is ready');
  // First: what a node has replayed later is not more than that.
  const end = await ask<{ position: number }>(
    region,
    parent,
    `${positionOf('pg_current_wal_lsn')} as position`,
  ).catch(() => null);
  const found = new Map<string, OfNode>();
  for (let tries = nodes.length * TRIES; tries > 0 && found.size < nodes.length; tries -= 1) {
    const answer = await ask<OfNode>(region, id, OF_NODE);
    found.set(answer.address, answer);
  }
  const usages: Usage[] = [];
  for (const node of nodes) {
    const answer = found.get(node.address ?? '');
    if (answer !== undefined)
      usages.push({
        ...(await usageOfNode(region, cluster, node, answer)),
        lag: lagOf(answer, end),
      });
  }
  return usages;
}

async function usageOfNode(
  region: Region,
  cluster: ClusterState,
  { n }: ServerState,
  { connections, transactions, storageBytes }: OfNode,
): Promise<Omit<Usage, 'lag'>> {
  const resources = await resourcesOf(region, cluster, n);
  // The nodes of a set are counted from 1.
  return { node: n + 1, connections, transactions, storageBytes, ...resources, waits: NO_WAITS };
}

/** @param end the position of the primary; null: it did not answer */
function lagOf(
  { position, age }: Pick<OfNode, 'position' | 'age'>,
  end: Readonly<{ position: number }> | null,
): Usage['lag'] {
  if (end === null || position === null) return null;
  const bytes = Math.max(0, end.position - position);
  return { bytes, seconds: bytes === 0 ? 0 : Math.max(0, age ?? 0) };
}

async function ask<T extends QueryResultRow>(
  region: Region,
  id: string,
  expression: string,
): Promise<T> {
  const server = await serverOf(region, id);
  const client = await openSession(server, SAMPLE_DEADLINE_MS, SAMPLE_WAITS);
  try {
    const answer = await beginReading<T>(client, server, expression, SAMPLE_DEADLINE_MS);
    if (answer === null) throw new EngineUnavailable('it gave no answer');
    return answer;
  } finally {
    client.connection.stream.destroy();
  }
}
