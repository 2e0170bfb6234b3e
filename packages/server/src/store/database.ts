/** The connections to the metadata database. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Kysely, PostgresDialect, sql } from 'kysely';
import { Client, type ClientConfig, Pool } from 'pg';
import { breakWhenSilent, END_WHEN_SILENT, openControlSession } from './connections.ts';
import { migrateTables } from './migrations.ts';
import type { Channel, OnNotification } from './notifications.ts';
import { preparing } from './prepared.ts';
import type { Db, Tables, Tx } from './tables.ts';

export type Store = {
  db: Db;
  /** For the statements that answer many requests at once; see `read.ts`. */
  pool: Pool;
  /**
   * Calls the listener with the payload of each notification, or with null after the connection
   * broke and notifications may have been lost. Ends with {@link Store.close}.
   */
  listen: (channel: Channel, listener: OnNotification) => void;
  close: () => Promise<void>;
};

/**
 * Connects, migrates the tables, and takes the lock that keeps other control planes out.
 *
 * @param onError receives the errors of broken connections; they are opened again
 * @throws AlreadyRunning
 */
export async function openStore(
  connection: ClientConfig,
  onError: (error: Error) => void,
): Promise<Store> {
  // On few cores, queueing statements here is faster than running them at once
  // (docs/performance.md).
  const pool = new Pool({
    ...breakWhenSilent(connection),
    max: 8,
    application_name: 'howdah control plane',
    // The pool awaits the result, although its types do not say so.
    // oxlint-disable-next-line typescript/no-misused-promises
    onConnect: (client) => client.query(END_WHEN_SILENT),
  });
  pool.on('error', onError);
  // The pool handles errors of idle connections only; an unhandled one would end this process.
  pool.on('connect', (client) => client.on('error', onError));
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: preparing(pool) }) });
  const callbacks: [Channel, OnNotification][] = [];
  const onNotification = (channel: string, payload: string): void => {
    for (const [wanted, listener] of callbacks) if (wanted === channel) listener(payload);
  };
  let session = await openControlSession(connection, onError, onNotification);
  let closing = false;

  const keepSession = (current: Client): void => {
    current.once('end', () => void reconnect());
  };
  const reconnect = async (): Promise<void> => {
    while (!closing) {
      try {
        session = await openControlSession(connection, onError, onNotification);
        keepSession(session);
        for (const [, listener] of callbacks) listener(null);
        return;
      } catch (error) {
        onError(error instanceof Error ? error : new Error(String(error)));
        await sleep(RECONNECT_MS);
      }
    }
  };

  try {
    await migrateTables(connection, onError);
  } catch (error) {
    await session.end();
    await db.destroy();
    throw error;
  }
  keepSession(session);
  return {
    db,
    pool,
    listen: (channel, listener) => void callbacks.push([channel, listener]),
    close: async () => {
      closing = true;
      await session.end();
      await db.destroy();
    },
  };
}

const RECONNECT_MS = 500;

/**
 * Lets a transaction commit without waiting for the disk, for writes that are repeated if a crash
 * loses them. The next commit that waits makes them durable too.
 */
export async function commitWithoutFlush(tx: Tx): Promise<void> {
  await sql`set local synchronous_commit = off`.execute(tx);
}
