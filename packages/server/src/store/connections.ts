/**
 * Connections that break when the metadata database stays silent, and the one that holds the lock.
 */
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type ClientConfig } from 'pg';
import type { Rounds } from '../lib/rounds.ts';
import { CHANNELS } from './events.ts';

/** "howdah" as a number: the key of the lock that the control plane holds while it runs. */
const CONTROL_LOCK = 0x686f77646168n;

/** Another control plane uses the same metadata database. */
export class AlreadyRunning extends Error {}

/**
 * A network device may drop a connection without closing it, so an answer that takes longer never
 * comes. Both ends then close: the server ends the statement, transaction or session and releases
 * its locks.
 */
const SILENCE_MS = 30_000;

export const END_WHEN_SILENT = [
  'statement_timeout',
  'idle_in_transaction_session_timeout',
  'idle_session_timeout',
]
  .map((setting) => `set ${setting} = ${SILENCE_MS}`)
  .join(';');

/**
 * The control plane that holds the lock counts on it for this long after it asked for a heartbeat
 * that was answered. The server keeps the lock for twice the time: the rest is for requests to
 * clusters that are on their way.
 */
const HELD_MS = SILENCE_MS / 2;
/** How often a control plane that waits asks for the lock. */
const LOCK_POLL_MS = 500;

/**
 * Destroys the socket after {@link SILENCE_MS} without traffic. The pool ends idle
 * connections long before.
 */
export function breakWhenSilent(connection: ClientConfig): ClientConfig {
  return { ...connection, stream: silentSocket };
}

function silentSocket(): Socket {
  const socket = new Socket();
  const breakOff = () =>
    socket.destroy(
      new Error(
        `Connection terminated: the metadata database has been silent for ${SILENCE_MS / 1000} s`,
      ),
    );
  return socket.setTimeout(SILENCE_MS, breakOff);
}

/** Where a control plane answers requests. */
export type Address = Readonly<{ host: string; port: number }>;

/** How a control plane waits for the lock of another one. */
export type Waiting = Readonly<{
  /** The port of its own API. */
  port: number;
  /** Called with the address of the control plane that holds the lock; null: it is not known. */
  holder: (address: Address | null) => void;
}>;

export type ControlSession = Readonly<{
  client: Client;
  /** Whether no other control plane can have the lock. */
  holdsLock: () => boolean;
}>;

/**
 * Opens the connection that holds the control plane's lock and receives notifications.
 *
 * @param rounds runs the heartbeat
 * @param waiting null: does not wait for the lock
 * @throws AlreadyRunning when another control plane has the lock
 */
export async function openControlSession(
  connection: ClientConfig,
  rounds: Rounds,
  waiting: Waiting | null,
  onError: (error: Error) => void,
  onNotification: (channel: string, payload: string) => void,
): Promise<ControlSession> {
  const socket = silentSocket();
  const client = new Client({
    ...connection,
    stream: () => socket,
    application_name: NAME,
  });
  client.on('error', onError);
  client.on('notification', ({ channel, payload }) => onNotification(channel, payload ?? ''));
  await client.connect();
  try {
    await client.query(END_WHEN_SILENT);
    const takenMs = await takeLock(client, waiting);
    for (const channel of CHANNELS) await client.query(`listen ${channel}`);
    // Others find the address beside the lock, and never that of a control plane that has ended.
    if (waiting !== null)
      await client.query("select set_config('application_name', $1, false)", [
        `${NAME} at ${socket.localAddress ?? 'localhost'} ${waiting.port}`,
      ]);
    return { client, holdsLock: keepAsking(client, socket, rounds, takenMs) };
  } catch (error) {
    await client.end();
    throw error;
  }
}

const NAME = 'howdah control plane, notifications';

/** The second column is the name of the session that has the lock. */
const TAKE_LOCK = `select pg_try_advisory_lock($1) as locked, (
  select a.application_name from pg_locks l join pg_stat_activity a using (pid)
  where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and a.datname = current_database()
    and (l.classid::bigint << 32) | l.objid::bigint = $1::bigint limit 1) as holder`;

/** @returns when it asked for the lock, by `performance.now()` @throws AlreadyRunning */
async function takeLock(client: Client, waiting: Waiting | null): Promise<number> {
  for (;;) {
    const askedMs = performance.now();
    const { rows } = await client.query<{ locked: boolean; holder: string | null }>(TAKE_LOCK, [
      String(CONTROL_LOCK),
    ]);
    const [row] = rows;
    if (row?.locked === true) return askedMs;
    if (waiting === null)
      throw new AlreadyRunning(
        'another control plane is using this metadata database; stop it first (howdah down)',
      );
    waiting.holder(addressIn(row?.holder ?? ''));
    await sleep(LOCK_POLL_MS);
  }
}

function addressIn(name: string): Address | null {
  const [, host, port] = / at (\S+) (\d+)$/.exec(name) ?? [];
  return host === undefined || port === undefined ? null : { host, port: Number(port) };
}

/** Asks for heartbeats, and ends the connection when they are not answered in time. */
function keepAsking(
  client: Client,
  socket: Socket,
  rounds: Rounds,
  takenMs: number,
): () => boolean {
  let answeredMs = takenMs;
  let isOpen = true;
  const holdsLock = (): boolean => isOpen && performance.now() - answeredMs < HELD_MS;
  const ask = async (): Promise<void> => {
    const askedMs = performance.now();
    const answer = client.query('select').then(
      () => (answeredMs = askedMs),
      () => undefined, // it has ended, and is recreated
    );
    const leftMs = Math.max(0, answeredMs + HELD_MS - askedMs);
    await Promise.race([answer, sleep(leftMs, undefined, { ref: false })]);
    if (!holdsLock()) socket.destroy(new Error('Connection terminated: no answer to a heartbeat'));
  };
  const heartbeat = rounds.every('metadataSessions', ask);
  heartbeat.startLater();
  client.once('end', () => {
    isOpen = false;
    void heartbeat.close();
  });
  return holdsLock;
}
