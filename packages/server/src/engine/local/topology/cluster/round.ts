/** One round of a cluster: what is desired, and the primary that is recorded. */
import { existsSync } from 'node:fs';
import { memberKey, type InstancePaths, type Layout } from '../../host/layout.ts';
import type { Topology } from '../context.ts';
import type { Found } from '../executor.ts';
import { type Cluster, inTurn } from './cluster.ts';
import type { PlacedCluster, PlacedSpec } from '../../../postgres/decisions/placed-spec.ts';
import { rename, writeFile } from '../../host/root-files.ts';
import type { Round, Rounds } from '../../../../lib/rounds.ts';
import { memberName } from '../../../postgres/replication/replication-conf.ts';
import { followersOf } from '../../../postgres/replication/replication-state.ts';

export type ClusterRound = {
  readonly topology: Topology;
  readonly cluster: Cluster;
  readonly spec: PlacedSpec;
  /** The cluster's `primary` is the one that was recorded when the round began. */
  readonly ha: PlacedCluster;
};

/** @throws Error when the cluster has no such instance */
export function portOf(ha: PlacedCluster, n: number): number {
  const instance = ha.servers.find((candidate) => candidate.n === n);
  if (instance === undefined)
    throw new Error(`member ${n} is none of ${ha.servers.map((found) => found.n).join(', ')}`);
  return instance.port;
}

/** The name by which the monitor knows an instance of the cluster. */
export function keyOf({ spec }: Pick<ClusterRound, 'spec'>, n: number): string {
  return memberKey(spec.id, n);
}

export function pathsOf(
  { topology, spec }: Pick<ClusterRound, 'topology' | 'spec'>,
  n: number,
): InstancePaths {
  return topology.machine.layout.member(spec.id, n);
}

/** @throws Error when the round did not observe the instance */
export function foundAt(found: ReadonlyMap<number, Found>, n: number): Found {
  const instance = found.get(n);
  if (instance === undefined) throw new Error(`member ${n} was not observed`);
  return instance;
}

// Who is the primary of a cluster. The metadata database decides it; the file `primary` of the
// service is a copy for readers without that database. To be used in turn.

/**
 * Records another instance as the primary in the metadata database.
 *
 * @throws Error when it names a third instance, or none
 */
export async function recordPrimary(
  { topology, cluster, ha }: ClusterRound,
  to: number,
): Promise<void> {
  const named = await topology.records
    .recordPrimary(cluster.id, ha.primary, to)
    .catch((error: unknown) => {
      cluster.isUnsure = true;
      throw error;
    });
  await believe(topology, cluster, named);
  if (named !== to)
    throw new Error(`the metadata database names member ${named} as the primary, not member ${to}`);
}

/**
 * The round with the primary that is recorded now. It may have been read before the last failover:
 * who is the primary is known here first.
 */
export async function withRecordedPrimary(round: ClusterRound): Promise<ClusterRound> {
  const { topology, cluster, ha } = round;
  const { layout } = topology.machine;
  const { id } = cluster;
  if (cluster.isUnsure) {
    const record = await topology.records.read(id);
    await believe(topology, cluster, record?.primary ?? null);
  }
  if (!cluster.isAdopted && existsSync(layout.service(id).root)) {
    if (layout.primaryOf(id) !== ha.primary) await notePrimary(layout, id, ha.primary);
    cluster.isAdopted = true;
  }
  return cluster.isAdopted ? { ...round, ha: { ...ha, primary: layout.primaryOf(id) } } : round;
}

/** Does something to the primary in turn, unless another has become it meanwhile. */
export async function toPrimary(round: ClusterRound, work: () => Promise<string>): Promise<string> {
  return inTurn(round.cluster, async () =>
    (await withRecordedPrimary(round)).ha.primary === round.ha.primary
      ? work()
      : 'not done: another member is the primary by now',
  );
}

async function believe(
  { machine }: Topology,
  cluster: Cluster,
  named: number | null,
): Promise<void> {
  const { id } = cluster;
  if (named === null) throw new Error(`service ${id} is not in the metadata database any more`);
  cluster.isUnsure = true; // until it is written down
  await notePrimary(machine.layout, id, named);
  cluster.isUnsure = false;
}

/** Right after a crash of the machine, the file may still have the number before. */
async function notePrimary(layout: Layout, id: string, n: number): Promise<void> {
  const path = layout.primaryFile(id);
  await writeFile(`${path}.new`, String(n));
  await rename(`${path}.new`, path);
}

// Between two rounds: whether all standbys of each cluster follow.

/** PostgreSQL sends no notice when a standby ceases to follow. */
export function watchFollowers(topology: Topology, rounds: Rounds): Round {
  const round = rounds.every('followers', () => askFollowers(topology));
  round.startLater();
  return round;
}

/** Asks each primary whether all its standbys follow. */
async function askFollowers({ machine, monitor, clusters, changed }: Topology): Promise<void> {
  for (const { spec } of clusters.values()) {
    if (spec === null || spec.ha === null || spec.power === 'paused') continue;
    const primary = machine.layout.primaryOf(spec.id);
    const followers = await followersOf(monitor, memberKey(spec.id, primary));
    const isLate = spec.ha.servers.some(
      ({ n }) => n !== primary && followers?.streaming.includes(memberName(n)) !== true,
    );
    if (isLate) changed(spec.id);
  }
}
