/**
 * Connections that break when the metadata database stays silent, and the one that holds the lock.
 */
import { Socket } from 'node:net';
import { Client, type ClientConfig } from 'pg';
import { CHANNELS } from './notifications.ts';

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
 * Destroys the socket after {@link SILENCE_MS} without traffic. The pool ends idle
 * connections long before.
 */
export function breakWhenSilent(connection: ClientConfig): ClientConfig {
  const stream = (): Socket => {
    const socket = new Socket();
    const breakOff = () =>
      socket.destroy(
        new Error(
          `Connection terminated: the metadata database has been silent for ${SILENCE_MS / 1000} s`,
        ),
      );
    return socket.setTimeout(SILENCE_MS, breakOff);
  };
  return { ...connection, stream };
}

/** Opens the connection that holds the control plane's lock and receives notifications. */
export async function openControlSession(
  connection: ClientConfig,
  onError: (error: Error) => void,
  onNotification: (channel: string, payload: string) => void,
): Promise<Client> {
  const session = new Client({
    ...breakWhenSilent(connection),
    application_name: 'howdah control plane, notifications',
  });
  session.on('error', onError);
  session.on('notification', ({ channel, payload }) => onNotification(channel, payload ?? ''));
  await session.connect();
  let asking = false;
  const heartbeat = setInterval(() => {
    if (asking) return;
    asking = true;
    session
      .query('select')
      .catch(() => undefined) // it has ended, and is recreated
      .finally(() => (asking = false));
  }, SILENCE_MS / 3);
  session.once('end', () => clearInterval(heartbeat));
  try {
    const { rows } = await session.query<{ locked: boolean }>(
      'select pg_try_advisory_lock($1) as locked',
      [String(CONTROL_LOCK)],
    );
    if (rows[0]?.locked !== true)
      throw new AlreadyRunning(
        'another control plane is using this metadata database; stop it first (howdah down)',
      );
    for (const channel of CHANNELS) await session.query(`listen ${channel}`);
    await session.query(END_WHEN_SILENT);
    return session;
  } catch (error) {
    await session.end();
    throw error;
  }
}
