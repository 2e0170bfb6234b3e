/** Starts and stops the server of an instance. */
import { join } from 'node:path';
import { signal } from '../../../lib/processes.ts';
import type { Origin } from '../../spec.ts';
import { recoverOn } from '../backup/recovery.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { rm } from '../host/root-files.ts';
import { isFile } from '../../../lib/untrusted-files.ts';
import { ownerOf } from '../host/users.ts';
import type { Listener } from '../network/listener.ts';
import { assertPlace } from '../network/networks.ts';
import { wasShutDown } from '../../postgres/data/identity.ts';
import { missingFor } from '../postgres/installations.ts';
import {
  findServer,
  launch,
  portIsFree,
  stopServer,
  waitUntilReady,
  whyItEnded,
  type Server,
} from '../postgres/server.ts';
import type { StopMode } from '../../postgres/postmaster-file.ts';
import { holdPooler } from '../proxy/pooler.ts';
import { limitSoon, type Executor, type Found } from './executor.ts';
import { beginFlush, parentOf, writeMark } from './make-instance.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';

/**
 * How long a step waits for a server to be ready; later its start is reported as in progress. It
 * goes on then, and the round is free for what a user changes meanwhile.
 */
const START_PATIENCE_MS = 3000;
/**
 * How long a server may take to end before it is killed, and to be gone after that. After the mode
 * `immediate` a server recovers at its next start anyway: to kill it loses nothing more.
 */
const PATIENCE_MS: Readonly<Record<StopMode, number>> = {
  fast: 60_000,
  immediate: 5000,
  kill: 60_000,
};

/** Starts the server of an instance. @returns a line for the user */
export async function startServer(
  executor: Executor,
  spec: PlacedSpec,
  found: Found,
): Promise<string> {
  const { machine, monitor, poolers } = executor;
  const { key, paths, listener, heartbeat, marker, installation, pooler } = found;
  const owner = ownerOf(machine, paths);
  if (installation === null)
    throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
  const { address, port } = found.listen;
  const isProvisioned = marker?.provisioned === true;
  // Clients of its pooler wait until it is ready.
  if (pooler !== null) await holdPooler(poolers, machine.layout.service(spec.id));
  await assertPlace(listener, machine.networks);
  await assertPortIsFree(listener, address, port);
  if (spec.origin !== null && !isProvisioned) await prepareRecovery(executor, spec.origin, paths);
  if (marker !== null && !isProvisioned) await ensureFlush(executor, paths);
  const why = (await hasDied(paths, isProvisioned)) ? 'it had ended without being shut down; ' : '';
  const begunMs = Date.now();
  await launch(machine, owner, paths, installation.bin, spec, listener, followedBy(machine, spec));
  const state = await waitUntilReady(paths, START_PATIENCE_MS);
  if (state === 'ended')
    throw new Error(`PostgreSQL did not start: ${await whyItEnded(paths, begunMs)}`);
  if (state === 'starting') return `${why}recovering from its WAL, which goes on`;
  const server = await findServer(paths);
  const isStandby = isFile(join(paths.data, 'standby.signal'));
  if (server !== null) {
    limitSoon(executor, key, spec, server);
    if (!isStandby && executor.repositories.known().length > 0) heedArchiveTimeout(server);
  }
  // Members and nodes accept clients only while they are watched, and so does a server without a
  // password.
  if (isProvisioned && spec.ha === null && spec.set === null)
    monitor.connectSoon(key, paths, port, heartbeat);
  else await monitor.connect(key, paths, port, heartbeat);
  return `${why}accepting connections after ${Date.now() - begunMs} ms`;
}

/**
 * Has a server heed archive_timeout. Its checkpointer begins before recovery ends, and ignores the
 * setting until it wakes: after checkpoint_timeout, if nothing had to be recovered
 * (CheckpointerMain of PostgreSQL's src/backend/postmaster/checkpointer.c). A reload wakes it.
 */
function heedArchiveTimeout({ postmaster }: Server): void {
  signal(postmaster.pid, 'SIGHUP');
}

/** Has a fork to a point in time recover to it when it starts. */
async function prepareRecovery(
  executor: Executor,
  origin: Origin,
  paths: InstancePaths,
): Promise<void> {
  // A repository's backup is complete: its WAL was fetched up to the point in time.
  if (origin.targetTime === null || origin.repository !== undefined) return;
  const { machine } = executor;
  await recoverOn(
    machine,
    ownerOf(machine, paths),
    paths,
    parentOf(executor, origin),
    origin.targetTime,
    await whyItEnded(paths, 0),
    () => writeMark(executor, origin),
  );
}

/** Sees that an instance is being flushed before it is provisioned. */
async function ensureFlush(executor: Executor, paths: InstancePaths): Promise<void> {
  // A server that was not shut down flushes all of its files itself before it recovers.
  if (!(await wasShutDown(paths.data))) executor.flushing.set(paths.root, Promise.resolve());
  else if (!executor.flushing.has(paths.root)) beginFlush(executor, paths);
}

/**
 * Whether a server ended without a shutdown. A standby may have the files that its primary had when
 * it was cloned.
 */
async function hasDied(paths: InstancePaths, isProvisioned: boolean): Promise<boolean> {
  if (!isProvisioned || isFile(join(paths.data, 'standby.signal'))) return false;
  return !(await wasShutDown(paths.data).catch(() => true));
}

/**
 * The services whose files a server reads: a node of a read replica set reads those of its primary.
 */
function followedBy({ layout }: Machine, { set }: PlacedSpec): string[] {
  return set === null ? [] : [layout.service(set.parent).root];
}

/** @throws Error when another program listens on the port */
export async function assertPortIsFree(
  { namespace }: Listener,
  address: string,
  port: number,
): Promise<void> {
  // No other program is in a network of our own.
  if (namespace !== null) return;
  if (await portIsFree(address, port)) return;
  throw new Error(
    `port ${port} of ${address} is held by another program; ` +
      `end it (ss -ltnp 'sport = :${port}' shows it), the start is tried again`,
  );
}

/**
 * Stops a server, by force if it does not stop otherwise; it then recovers at its next start.
 *
 * @param patienceMs how long it may take before that
 */
export async function stopInstance(
  { machine, monitor, limiting }: Executor,
  key: string,
  paths: InstancePaths,
  server: Server,
  mode: StopMode,
  patienceMs = PATIENCE_MS[mode],
): Promise<void> {
  monitor.forget(key);
  await limiting.get(key);
  // For its last checkpoint.
  await machine.shares.free(key);
  const isGone =
    (await stopServer(machine, server, mode, patienceMs)) ||
    (await stopServer(machine, server, 'kill', PATIENCE_MS.kill));
  // Without the pid file, the next observation need not search all processes.
  if (isGone) {
    machine.shares.remove(key);
    return rm(paths.pidFile, { force: true });
  }
  throw new Error(
    `its server (pid ${server.postmaster.pid}) does not end, ` +
      'not even by SIGKILL: does its disk hang?',
  );
}

/** Stops the server of an instance in order, if it runs. */
export async function stopIfRunning(
  executor: Executor,
  { key, paths, server }: Pick<Found, 'key' | 'paths' | 'server'>,
): Promise<void> {
  if (server !== null) await stopInstance(executor, key, paths, server, 'fast');
}
