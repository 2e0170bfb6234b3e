/**
 * The resources that the primary of a service uses: CPU time and memory by the metrics API of the
 * cluster, and the rest by PostgreSQL at the endpoint, as the role of statements. Replicas have no
 * endpoint, so there are no figures of them.
 */
import { Type, type Static } from 'typebox';
import { isOfUsers } from '../../domain/postgres/databases.ts';
import { EngineUnavailable, type Usage } from '../engine.ts';
import { beginReading } from '../statements/run.ts';
import { openSession, SAMPLE_DEADLINE_MS, SAMPLE_WAITS } from '../statements/session.ts';
import { KINDS } from './api/kinds.ts';
import { quantityIn } from './api/quantity.ts';
import { podIn } from './manifests/names.ts';
import type { Region } from './region.ts';
import type { ClusterState } from './service/observed.ts';
import { serverOf } from './statements.ts';
import { NO_ANSWER, throwUnavailable } from './unavailable.ts';

const POD_METRICS = Type.Object({
  containers: Type.Array(
    Type.Object({ usage: Type.Object({ cpu: Type.String(), memory: Type.String() }) }),
  ),
});

export type Counted = Pick<Usage, 'connections' | 'transactions' | 'storageBytes'>;

/**
 * In SQL of any search path, as the session has that of the owner. Sessions of the superuser are
 * those of CloudNativePG. Numbers are read as such: the driver returns `bigint` as text.
 */
export const COUNTS = `
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
export async function resourcesOf(
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
export const NO_WAITS = { cpu: null, writes: null };

const NO_METRICS =
  'the metrics API of its Kubernetes cluster (metrics.k8s.io) has no figures of its pod; they come ' +
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
