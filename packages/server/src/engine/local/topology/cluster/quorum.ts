/** The standbys that the primary of a cluster waits for before it acknowledges a write. */
import { memberName, quorumSetting, type WaitedFor } from '../../postgres/replication.ts';
import { parseLsn } from '../../postgres/wal.ts';
import type { Followers } from '../replication-state.ts';
import type { Cluster } from './cluster.ts';

/**
 * Writes acknowledged before a quorum was in force are on all of its standbys once these have what
 * the primary had written by then. From then on no other standby is needed to be certain of them.
 *
 * @param key of the primary
 */
export function withoutFlushed(
  cluster: Cluster,
  key: string,
  next: WaitedFor,
  { flushed, end, setting, attentive }: Followers,
): WaitedFor {
  const mark = cluster.writtenUnder?.key === key ? cluster.writtenUnder : null;
  if (next.before.length === 0 || setting !== quorumSetting(next.now)) {
    cluster.writtenUnder = null;
    return next;
  }
  if (mark?.setting !== setting) {
    if (attentive) cluster.writtenUnder = { key, setting, end: parseLsn(end) };
    return next;
  }
  const haveAll = next.now.members.every(
    (n) => parseLsn(flushed[memberName(n)] ?? '0/0') >= mark.end,
  );
  return haveAll ? { now: next.now, before: [] } : next;
}
