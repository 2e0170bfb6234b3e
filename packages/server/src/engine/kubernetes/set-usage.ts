/**
 * The resources that the nodes of a read replica set use, and how far they are behind. Its endpoint
 * connects to any of them, so sessions are opened until each node has answered one: the address of
 * a server is that of its pod.
 */
import type { QueryResultRow } from 'pg';
import { EngineUnavailable, type Usage } from '../engine.ts';
import { beginReading } from '../statements/run.ts';
import { openSession, SAMPLE_DEADLINE_MS, SAMPLE_WAITS } from '../statements/session.ts';
import type { Region } from './region.ts';
import type { ClusterState, ServerState } from './service/observed.ts';
import { serverOf } from './statements.ts';
import { COUNTS, NO_WAITS, resourcesOf, type Counted } from './usage.ts';

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
      usages.push({ ...(await usageOf(region, cluster, node, answer)), lag: lagOf(answer, end) });
  }
  return usages;
}

async function usageOf(
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
export function lagOf(
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
