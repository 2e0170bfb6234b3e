/**
 * The standbys of a cluster, and the writes that are acknowledged: whom the primary waits for,
 * whether earlier quorums still count, and whether clients can write.
 */
import { hangs, type GatewaySeen, type InstanceSeen } from '../decisions/decide-ha.ts';
import { memberName, quorumSetting, type WaitedFor } from './replication-conf.ts';
import type { Followers } from './replication-state.ts';
import { parseLsn } from '../data/wal.ts';

/** Who follows the primary, and whom it waits for. */
export type Replication = {
  /** The desired standbys, by number. */
  readonly others: readonly number[];
  readonly streaming: readonly number[];
  /** By the file of the primary, and as it will be. */
  readonly current: WaitedFor;
  readonly next: WaitedFor;
};

/** How far a primary had written when its quorum was seen in force. */
export type WrittenUnder = {
  readonly key: string;
  readonly setting: string;
  readonly end: bigint;
};

/**
 * Writes acknowledged before a quorum was in force are on all of its standbys once these have what
 * the primary had written by then. From then on no other standby is needed to be certain of them.
 *
 * @param key of the primary
 */
export function withoutFlushed(
  cluster: { writtenUnder: WrittenUnder | null },
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

/** Whether the primary has a slot for each standby, and no others. */
export function areSlotsCurrent(
  instances: readonly InstanceSeen[],
  others: readonly number[],
  followers: Followers | null,
): boolean {
  if (followers === null) return true;
  // The slot of one that is to be made comes with it.
  const made = instances
    .filter(({ n, data }) => others.includes(n) && data !== 'absent')
    .map(({ n }) => memberName(n));
  return isWithin(made, followers.slots) && isWithin(followers.slots, others.map(memberName));
}

/** Whether standbys that are waited for still receive what was acknowledged without them. */
export function isSettling({ next, streaming }: Replication): boolean {
  return next.before.length > 0 && next.now.members.every((n) => streaming.includes(n));
}

/**
 * Whether clients can write. A primary that has missed a heartbeat counts as slow until it hangs:
 * on a busy machine the status of a service must not change with every pause.
 *
 * @param own the primary
 */
export function isWritable(
  own: InstanceSeen | undefined,
  gateway: Pick<GatewaySeen, 'running'>,
  followers: Followers | null,
  { streaming, current: { now } }: Pick<Replication, 'streaming' | 'current'>,
): boolean {
  return (
    own?.server?.phase === 'ready' &&
    own.data === 'primary' &&
    !hangs(own) &&
    gateway.running &&
    (followers === null || streaming.filter((n) => now.members.includes(n)).length >= now.count)
  );
}

function isWithin(some: readonly string[], all: readonly string[]): boolean {
  return some.every((name) => all.includes(name));
}
