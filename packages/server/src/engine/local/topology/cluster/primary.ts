/**
 * Who is the primary of a cluster. The metadata database decides it; the file `primary` of the
 * service is a copy for readers without that database. To be used in turn.
 */
import { existsSync } from 'node:fs';
import { rename, writeFile } from '../../host/root-files.ts';
import type { Layout } from '../../host/layout.ts';
import type { Topology } from '../context.ts';
import { inTurn, type Cluster } from './cluster.ts';
import type { ClusterRound } from './round.ts';

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
