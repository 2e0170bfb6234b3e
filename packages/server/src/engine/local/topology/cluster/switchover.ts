/** A planned change of the primary of a cluster: writes pause, and nothing is lost. */
import { setTimeout as sleep } from 'node:timers/promises';
import { NotYet } from '../../host/not-yet.ts';
import { memberName } from '../../postgres/replication.ts';
import { findServer } from '../../postgres/server.ts';
import { endOfWal, newestTimeline, parseLsn } from '../../postgres/wal.ts';
import { NOWHERE } from '../../proxy/gateway.ts';
import { holdPooler } from '../../proxy/pooler.ts';
import { routeGateway } from '../gateways.ts';
import { followersOf } from '../replication-state.ts';
import { stopInstance } from '../start-stop.ts';
import { checkpointAt } from './checkpoint.ts';
import { makeStandby } from './demotion.ts';
import { awaitFailoverSlots, keptSlots, settleFailoverSlots } from './failover-slots.ts';
import { acceptWrites } from './failover.ts';
import { recordPrimary } from './primary.ts';
import { keyOf, pathsOf, portOf, type ClusterRound } from './round.ts';

/**
 * How long the WAL of a primary that was shut down may take to reach the standby. Nobody can write
 * meanwhile, and afterwards the primary is started again.
 */
const CATCH_UP_MS = 30_000;
/**
 * A standby that lacks more WAL than this catches up before a switchover: a fast disk writes it in
 * a tenth of a second.
 */
const SWITCHOVER_LAG_BYTES = 16n * 1024n * 1024n;

/**
 * In order: the primary ends, having sent all it has; the standby is seen to have it; then it is
 * promoted. @returns a line for the user
 */
export async function switchOver(round: ClusterRound, to: number, why: string): Promise<string> {
  const { topology, ha } = round;
  const { machine, executor, poolers } = topology;
  const { id } = round.cluster;
  const paths = pathsOf(round, ha.primary);
  const server = await findServer(paths);
  if (server === null) throw new NotYet('the primary does not run');
  await refuseLagging(round, to);
  await awaitFailoverSlots(round, to);
  await checkpointAt(paths, server.port ?? portOf(ha, ha.primary));
  // Its clients wait until it is routed to the primary.
  await holdPooler(poolers, machine.layout.service(id));
  const begun = performance.now();
  await routeGateway(topology, id, NOWHERE);
  const lagging = await settleFailoverSlots(round, to);
  await stopInstance(executor, keyOf(round, ha.primary), paths, server, 'fast');
  await caughtUp(round, to);
  await recordPrimary(round, to);
  await acceptWrites(round, to);
  const pauseMs = Math.round(performance.now() - begun);
  // Nothing was written that the new primary does not have: the old one can follow it as it is.
  const slots = await makeStandby(machine, paths);
  const kept = await keptSlots(topology, keyOf(round, to)).catch(() => []);
  const said = sayOfSlots(slots, kept, lagging);
  return [`${why}; writes paused for ${pauseMs} ms, nothing was lost`, ...said].join('; ');
}

/**
 * @param slots those of users on the former primary
 * @param kept those of the new primary
 * @param lagging those whose last position it may not have
 */
export function sayOfSlots(
  slots: readonly string[],
  kept: readonly string[],
  lagging: readonly string[],
): string[] {
  const removed = slots.filter((name) => !kept.includes(name));
  const repeating = lagging.filter((name) => kept.includes(name));
  return [
    ...(removed.length === 0
      ? []
      : ['replication slots, which the new primary has not, were removed: ' + removed.join(', ')]),
    ...(kept.length === 0 ? [] : [`failover slots go on: ${kept.join(', ')}`]),
    ...(repeating.length === 0
      ? []
      : [`consumers that keep no position may get changes twice: ${repeating.join(', ')}`]),
  ];
}

/** Writes wait for as long as it takes the standby to receive what it lacks. @throws NotYet */
async function refuseLagging(round: ClusterRound, to: number): Promise<void> {
  const { topology, ha } = round;
  const followers = await followersOf(topology.monitor, keyOf(round, ha.primary));
  const lackingBytes =
    parseLsn(followers?.end ?? '0/0') - parseLsn(followers?.flushed[memberName(to)] ?? '0/0');
  if (lackingBytes > SWITCHOVER_LAG_BYTES)
    throw new NotYet(`member ${to} is ${lackingBytes} bytes behind: it catches up first`);
}

/** Waits until a standby has all WAL of the primary, which was stopped. */
async function caughtUp(round: ClusterRound, to: number): Promise<void> {
  const { topology, ha } = round;
  const { data } = pathsOf(round, ha.primary);
  const end = Date.now() + CATCH_UP_MS;
  for (;;) {
    const [row] = await topology.monitor.query<{ received: string }>(
      keyOf(round, to),
      'select pg_last_wal_receive_lsn()::text as received',
    );
    const received = parseLsn(row?.received ?? '0/0');
    if ((await endOfWal(data, await newestTimeline(data), received, 1n)) <= received) return;
    if (Date.now() > end)
      throw new Error(
        `member ${to} does not have all that member ${ha.primary} wrote: nothing was changed`,
      );
    await sleep(2);
  }
}
