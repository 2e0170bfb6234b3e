/** The standby that can take over from a primary that is dead or hangs. */
import { messageOf } from '@howdah/contract/thrown';
import { newestTimeline, endOfWal } from '../../../postgres/data/wal.ts';
import { waitedForOf } from '../../../postgres/replication/replication-conf.ts';
import {
  chooseSuccessor,
  type Candidate,
  type Successor,
} from '../../../postgres/decisions/failover.ts';
import { askReceived } from '../../../postgres/replication/replication-state.ts';
import { confOf, dataOf, isBroken } from '../standbys.ts';
import { keyOf, pathsOf, type ClusterRound } from './round.ts';

/** @returns the standby that can take over, or why none can */
export async function findSuccessor(round: ClusterRound): Promise<Successor> {
  const { topology, cluster, ha } = round;
  const { failover } = topology;
  const waitMs = (cluster.lastFailoverMs ?? -Infinity) + failover.cooldownMs - performance.now();
  if (waitMs > 0) return { why: `last failover less than ${failover.cooldownMs / 1000} s ago` };
  const primary = pathsOf(round, ha.primary);
  const others = ha.servers.filter(({ n }) => n !== ha.primary);
  const isLost = dataOf(primary) === 'absent';
  // Without its data, the newest timeline is that of the standbys.
  const asking = isLost ? others.map(({ n }) => pathsOf(round, n)) : [primary];
  const timelines = await Promise.all(
    asking.map(({ data }) => newestTimeline(data).catch(() => 0)),
  );
  const timeline = Math.max(0, ...timelines);
  const asked = await Promise.all(others.map(({ n }) => candidateAt(round, n, timeline)));
  const candidates = asked.filter((candidate) => candidate !== null);
  const furthest = candidates.reduce(
    (most, { received }) => (received > most ? received : most),
    0n,
  );
  try {
    return chooseSuccessor({
      candidates,
      sync: ha.sync,
      waitedFor: waitedForOf(await confOf(primary)),
      end:
        candidates.length === 0 || isLost
          ? null
          : await endOfWal(primary.data, timeline, furthest, BigInt(failover.lagLimitBytes)),
      maxLostBytes: failover.lagLimitBytes,
    });
  } catch (error) {
    // The primary is started again where it is, which says more.
    const reason = messageOf(error);
    return { why: `how far member ${ha.primary} has written cannot be read: ${reason}` };
  }
}

/** @returns null if the standby cannot be considered */
async function candidateAt(
  round: ClusterRound,
  n: number,
  timeline: number,
): Promise<Candidate | null> {
  const { monitor, standbys } = round.topology;
  const key = keyOf(round, n);
  const paths = pathsOf(round, n);
  if (!monitor.isConnected(key) || dataOf(paths) !== 'standby' || isBroken(standbys, key))
    return null;
  // A standby without the newest timeline has WAL that the others do not have.
  if ((await newestTimeline(paths.data)) !== timeline) return null;
  const received = await askReceived(monitor, key);
  return received === null ? null : { n, received };
}
