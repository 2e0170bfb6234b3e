/**
 * How the operator double changes the primary: in a failover, and in a switchover that the status
 * asks for (docs/cloudnativepg.md, facts 16 and 17). One primary has ended, and no standby receives
 * WAL of it any more, before another one is promoted.
 *
 * CloudNativePG stops a former primary in its pod; the double ends the pod, and makes another one.
 */
import {
  currentPrimary,
  isAlive,
  isLeaving,
  isReady,
  isReplica,
  pathIn,
  PENDING,
  targetPrimary,
  type Pod,
} from './cluster.ts';
import { FOLLOWS, ROLE } from './objects.ts';
import { changing, PHASES, type Seen, type Status, type Tools } from './status.ts';

/** One round of a change of the primary; null: there is none. */
export async function changePrimary(tools: Tools, seen: Seen): Promise<Status | null> {
  const { cluster, servers } = seen;
  // CloudNativePG may have the nodes of a replica cluster follow another one of them (fact 32).
  if (seen.claims.length < 2 || isReplica(cluster)) return null;
  const named = (name: string): Pod | undefined =>
    servers.find(({ metadata }) => metadata.name === name);
  const current = currentPrimary(cluster);
  const target = targetPrimary(cluster);
  const primary = named(current);
  const standbys = servers.filter(
    (pod) => pod !== primary && isReady(pod) && isAlive(pod) && !isLeaving(pod),
  );
  if (target === current) {
    const isLost = primary === undefined || !(isAlive(primary) || isStarting(primary));
    if (!isLost || !hasQuorum(seen, standbys.length)) return null;
    return { ...changing(PHASES.failover), targetPrimary: PENDING };
  }
  if (target === PENDING) return chooseTarget(tools, { seen, primary, standbys });
  const successor = standbys.find(({ metadata }) => metadata.name === target);
  const isAsked = cluster.status?.phase === PHASES.switchover;
  const phase = isAsked ? PHASES.switchover : PHASES.failover;
  if (successor === undefined)
    // A primary that lives is not ended for a standby that cannot take over.
    return { ...changing(phase), targetPrimary: primary === undefined ? PENDING : current };
  if (primary !== undefined) {
    if (!isLeaving(primary)) await remove(tools, primary);
    return changing(phase);
  }
  if ((await readWal(tools, successor)).isReceiving) return changing(phase);
  // The result of an earlier promotion may have been lost.
  await tools.exec(successor, `${SQL} '${BECOME_PRIMARY}'`);
  await tools.api.merge(podPath(successor), { metadata: { labels: { [ROLE]: 'primary' } } });
  return { ...changing(phase), currentPrimary: target };
}

/** Ends the old primary, and chooses the standby that has the most WAL once all have it. */
async function chooseTarget(
  tools: Tools,
  {
    seen,
    primary,
    standbys,
  }: Readonly<{ seen: Seen; primary: Pod | undefined; standbys: readonly Pod[] }>,
): Promise<Status> {
  if (primary !== undefined) {
    await tools.api.merge(podPath(primary), { metadata: { labels: { [ROLE]: 'unhealthy' } } });
    await remove(tools, primary, 0);
    return changing(PHASES.failover);
  }
  // A standby that ended meanwhile may be the one that has every acknowledged write.
  if (!hasQuorum(seen, standbys.length))
    return { ...changing(PHASES.failover), targetPrimary: currentPrimary(seen.cluster) };
  const read = await Promise.all(standbys.map((pod) => readWal(tools, pod)));
  if (read.some(({ isReceiving }) => isReceiving)) return changing(PHASES.failover);
  const [best] = read.toSorted((a, b) => (a.position < b.position ? 1 : -1));
  if (best === undefined) return changing(PHASES.failover);
  return { ...changing(PHASES.failover), targetPrimary: best.name };
}

/** Whether a container has not run yet: a pod that was just made is no dead primary. */
const isStarting = (pod: Pod): boolean =>
  !isLeaving(pod) && (pod.status?.containerStatuses ?? []).length === 0;

/** Whether one of so many standbys has every acknowledged write, whichever they are. */
function hasQuorum({ cluster, claims }: Seen, standbys: number): boolean {
  const synchronous = cluster.spec.postgresql.synchronous?.number ?? null;
  if (standbys === 0) return false;
  return synchronous === null || standbys + synchronous > claims.length - 1;
}

const SQL = 'psql --no-psqlrc --host=/tmp --username=postgres --tuples-only --no-align --command';
const BECOME_PRIMARY = 'select case when pg_is_in_recovery() then pg_promote() end';
const WAL =
  "select greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), '0/0') - '0/0', " +
  "exists (select from pg_stat_wal_receiver where status = 'streaming')";

/** The WAL that a standby has, in bytes, and whether more is on its way. */
async function readWal(tools: Tools, pod: Pod) {
  const answer = await tools.exec(pod, `${SQL} "${WAL}"`);
  const [, position, receiving] = /^(\d+)\|([tf])$/.exec(answer.trim()) ?? [];
  if (position === undefined) throw new Error(`${pod.metadata.name}: ${answer}`);
  return {
    name: pod.metadata.name,
    position: BigInt(position),
    isReceiving: receiving === 't',
  };
}

/** Ends the recovery of the first server of a Cluster that is no replica cluster now: fact 37. */
export async function endRecovery(tools: Tools, { cluster, servers }: Seen): Promise<boolean> {
  const first = servers.find(({ metadata }) => metadata.name === currentPrimary(cluster));
  if (first === undefined || isReplica(cluster)) return false;
  if (first.metadata.annotations?.[FOLLOWS] !== 'yes') return false;
  await tools.exec(first, `${SQL} '${BECOME_PRIMARY}'`);
  await tools.api.merge(podPath(first), { metadata: { annotations: { [FOLLOWS]: 'no' } } });
  return true;
}

const podPath = ({ metadata }: Pod): string => pathIn(metadata.namespace, 'pods', metadata.name);

const remove = ({ api }: Tools, pod: Pod, graceSeconds?: number): Promise<void> =>
  api.remove(podPath(pod), graceSeconds);

/** A standby that can take over as asked; null: there is none. */
export function standbyOf({ cluster, servers }: Seen): string | null {
  const current = currentPrimary(cluster);
  const standby = servers.find(({ metadata }) => metadata.name !== current);
  return standby?.metadata.name ?? null;
}
