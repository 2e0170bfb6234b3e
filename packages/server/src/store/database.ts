/** The connections to the metadata database. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Kysely, PostgresDialect, sql } from 'kysely';
import { type ClientConfig, Pool } from 'pg';
import {
  breakWhenSilent,
  END_WHEN_SILENT,
  openControlSession,
  type ControlSession,
  type Waiting,
} from './connections.ts';
import type { Rounds } from '../lib/rounds.ts';
import { problemOfContents, readContents, type Contents } from './contents.ts';
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
  /**
   * Whether no other control plane can work with the metadata database now. If not, nothing may be
   * written outside of it that another one writes too.
   */
  holdsLock: () => boolean;
  close: () => Promise<void>;
};

/** A control plane of which there are several, one of them at work. */
export type Standby = Waiting &
  Readonly<{
    /** Called when the connection that holds the lock has broken: another one may work now. */
    lost: () => void;
  }>;

/** A database that cannot be the metadata database; the message says why. */
export class WrongDatabase extends Error {}

/** The expectations of the database, and of the control planes that use it. */
export type Expected = {
  /** Waits for the lock and for the metadata database; null: throws. */
  standby?: Standby | null;
  /** Why the database cannot be used, before anything in it is changed; null: it can. */
  problemOf?: (contents: Contents) => string | null;
};

/** Any metadata database, or an empty one. */
const isMetadata = ({ foreign }: Contents): string | null =>
  problemOfContents({ foreign, projects: [] }, null, false);

/**
 * Connects, takes the lock that keeps other control planes out, and migrates the tables.
 *
 * @param rounds runs the heartbeat of the session that holds the lock
 * @param onError receives the errors of broken connections; they are opened again
 * @throws AlreadyRunning; WrongDatabase
 */
export async function openStore(
  connection: ClientConfig,
  rounds: Rounds,
  onError: (error: Error) => void,
  { standby = null, problemOf = isMetadata }: Expected = {},
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
  const openSession = () =>
    openControlSession(connection, rounds, standby, onError, onNotification);
  let closing = false;
  const untilOpen = async (): Promise<ControlSession | null> => {
    while (!closing) {
      try {
        return await openSession();
      } catch (error) {
        onError(error instanceof Error ? error : new Error(String(error)));
        standby?.holder(null);
        await sleep(RECONNECT_MS);
      }
    }
    return null;
  };
  const keepSession = ({ client }: ControlSession): void => {
    client.once('end', () => {
      if (closing) return;
      if (standby === null) void reconnect();
      else standby.lost();
    });
  };
  const reconnect = async (): Promise<void> => {
    const opened = await untilOpen();
    if (opened === null) return;
    session = opened;
    keepSession(opened);
    for (const [, listener] of callbacks) listener(null);
  };
  const end = async (): Promise<void> => {
    closing = true;
    await session?.client.end();
    await db.destroy();
  };

  let session: ControlSession | null = null;
  try {
    session = await (standby === null ? openSession() : untilOpen());
    if (session !== null) keepSession(session);
    const problem = session === null ? null : problemOf(await readContents(session.client));
    if (problem !== null) throw new WrongDatabase(problem);
    await migrateTables(connection, onError);
  } catch (error) {
    await end();
    throw error;
  }
  return {
    db,
    pool,
    listen: (channel, listener) => void callbacks.push([channel, listener]),
    holdsLock: () => session?.holdsLock() === true,
    close: end,
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
