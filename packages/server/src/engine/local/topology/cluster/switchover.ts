/** A planned change of the primary of a cluster: writes pause, and nothing is lost. */
import { setTimeout as sleep } from 'node:timers/promises';
import { join } from 'node:path';
import { NotYet } from '../../../not-yet.ts';
import { memberName } from '../../../postgres/replication/replication-conf.ts';
import { findServer } from '../../postgres/server.ts';
import { endOfWal, newestTimeline, parseLsn } from '../../../postgres/data/wal.ts';
import { NOWHERE } from '../../proxy/gateway.ts';
import { holdPooler, stopPooler } from '../../proxy/pooler.ts';
import { routeGateway, launchGateway, stopGateway, writeGatewayFiles } from '../gateways.ts';
import { followersOf } from '../../../postgres/replication/replication-state.ts';
import { stopInstance, startServer, stopIfRunning } from '../start-stop.ts';
import {
  awaitFailoverSlots,
  keptSlots,
  sayOfSlots,
  settleFailoverSlots,
} from '../../../postgres/replication/failover-slots.ts';
import { removeServerState } from '../../../postgres/data/former-primary.ts';
import { acceptWrites } from './failover.ts';
import { recordPrimary, keyOf, pathsOf, portOf, type ClusterRound, foundAt } from './round.ts';
import { archiveLeftovers } from '../../backup/recovery.ts';
import { writeOwned } from '../../backup/running-clone.ts';
import type { InstancePaths } from '../../host/layout.ts';
import type { Machine } from '../../host/machine-record.ts';
import { ownerOf } from '../../host/users.ts';
import { withSuperuserSession } from '../../../postgres/sessions/superuser.ts';
import type { Found } from '../executor.ts';
import { ownService } from '../../host/ownership.ts';
import { assertPlace } from '../../network/networks.ts';
import { configure } from '../make-instance.ts';
import { listenerFor } from '../context.ts';
import { observeServer } from '../observe-server.ts';
import { configureReplicated } from '../standbys.ts';

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
  const { machine, executor, monitor, poolers } = topology;
  const { id } = round.cluster;
  const [from, paths] = [keyOf(round, ha.primary), pathsOf(round, ha.primary)];
  const server = await findServer(paths);
  if (server === null) throw new NotYet('the primary does not run');
  await refuseLagging(round, to);
  await awaitFailoverSlots(monitor, from, keyOf(round, to));
  await checkpointAt(paths, server.port ?? portOf(ha, ha.primary));
  // Clients of the pooler wait until it is routed to the primary.
  await holdPooler(poolers, machine.layout.service(id));
  const begun = performance.now();
  await routeGateway(topology, id, NOWHERE);
  const lagging = await settleFailoverSlots(monitor, from, keyOf(round, to));
  await stopInstance(executor, from, paths, server, 'fast');
  await caughtUp(round, to);
  await recordPrimary(round, to);
  await acceptWrites(round, to);
  const pauseMs = Math.round(performance.now() - begun);
  // Nothing was written that the new primary does not have: the old one can follow it as it is.
  const slots = await makeStandby(machine, paths);
  const kept = await keptSlots(monitor, keyOf(round, to)).catch(() => []);
  const said = sayOfSlots(slots, kept, lagging);
  return [`${why}; writes paused for ${pauseMs} ms, nothing was lost`, ...said].join('; ');
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

// Makes a former primary a standby. A server has state that is in no WAL: it would come back as it
// was when this server is the primary again, although the service has gone on without it
// (docs/decisions/0090-state-of-a-former-primary.md).

/**
 * Makes the data of a primary that was shut down those of a standby. The new primary has all of its
 * WAL. An interruption is repaired by another copy: without the last file, it is no standby.
 *
 * @returns the slots of users that were removed
 */
async function makeStandby(machine: Machine, paths: InstancePaths): Promise<string[]> {
  const owner = ownerOf(machine, paths);
  const slots = await removeServerState(paths);
  await archiveLeftovers(owner, paths);
  // Settings of ALTER SYSTEM, and where a restore ended.
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
  await writeOwned(owner, join(paths.data, 'standby.signal'), '');
  return slots;
}

// A checkpoint before a shutdown writes most of what the shutdown would, while the primary still
// accepts connections.

/** A checkpoint that takes longer than this is given up, and with it the step. */
const CHECKPOINT_LIMIT_MS = 600_000;

async function checkpointAt(server: InstancePaths, port: number): Promise<void> {
  await withSuperuserSession(
    { server, port, name: 'howdah members', limitMs: CHECKPOINT_LIMIT_MS },
    (client) => client.query('checkpoint'),
  );
}

/** Makes a checkpoint of a server, if it runs. */
async function checkpoint({ paths, listen, server }: Found): Promise<void> {
  if (server !== null) await checkpointAt(paths, server.port ?? listen.port);
}

// Steps that stop and start the primary. Each is one step, so that the primary never counts as dead
// in between; clients that connect meanwhile wait.

/** The primary, and its desired replication settings. */
type Primary = { readonly found: Found; readonly conf: string };

/** Stops and starts the primary where it is. @returns a line for the user */
export async function restart(round: ClusterRound, found: Found, why: string): Promise<string> {
  const { topology, spec, ha } = round;
  const { machine, executor, poolers } = topology;
  await checkpoint(found);
  await holdPooler(poolers, machine.layout.service(spec.id));
  await routeGateway(topology, spec.id, NOWHERE);
  await stopIfRunning(executor, found);
  await configure(executor, found);
  await startServer(executor, spec, found);
  await routeGateway(topology, spec.id, portOf(ha, ha.primary));
  return why;
}

/** Moves the primary from the public port to its own, behind a gateway. */
export async function moveToGateway(
  { topology, spec, ha }: ClusterRound,
  { found, conf }: Primary,
): Promise<string> {
  const { executor } = topology;
  await checkpoint(found);
  await writeGatewayFiles(topology, spec);
  await configureReplicated(executor, found, conf);
  await stopIfRunning(executor, found);
  // From here on who connects waits: the gateway is there before the primary is.
  await launchGateway(topology, spec);
  const started = await startServer(executor, spec, found);
  await routeGateway(topology, spec.id, portOf(ha, ha.primary));
  return started;
}

/**
 * Stops the primary and starts it in the desired network, together with the gateway. All sessions
 * end.
 */
export async function move(
  { topology, spec, ha }: ClusterRound,
  { found, conf }: Primary,
  why: string,
): Promise<string> {
  const { machine, executor } = topology;
  await assertPlace(listenerFor(topology, spec), machine.networks);
  await checkpoint(found);
  await stopGateway(topology, spec.id);
  await writeGatewayFiles(topology, spec);
  await stopIfRunning(executor, found);
  await configureReplicated(executor, found, conf);
  await startServer(executor, spec, found);
  await launchGateway(topology, spec);
  await routeGateway(topology, spec.id, portOf(ha, ha.primary));
  return why;
}

/**
 * Ends all of a service, gives it to a user of its own, and starts its primary again as that user;
 * the others follow by their own steps.
 */
export async function changeOwner(
  { topology, spec, ha }: ClusterRound,
  found: ReadonlyMap<number, Found>,
  conf: string,
): Promise<string> {
  const { machine, executor, poolers } = topology;
  const { id } = spec;
  const primary = foundAt(found, ha.primary);
  await checkpoint(primary);
  await stopPooler(poolers, machine.layout.service(id));
  await stopGateway(topology, id);
  // The primary first: as it ends it sends all it has to the others.
  const others = [...found.values()].filter((server) => server !== primary);
  for (const server of [primary, ...others]) await stopIfRunning(executor, server);
  const owned = await ownService(machine, id, null);
  const { found: now } = await observeServer(topology, spec, ha.primary);
  await configureReplicated(executor, now, conf);
  await writeGatewayFiles(topology, spec);
  await startServer(executor, spec, now);
  await launchGateway(topology, spec);
  await routeGateway(topology, id, portOf(ha, ha.primary));
  return owned;
}
