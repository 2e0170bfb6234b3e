/** The connections to the metadata database. */
import { setTimeout as sleep } from 'node:timers/promises';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { asError, messageOf } from '@howdah/contract/thrown';
import {
  Kysely,
  PostgresDialect,
  sql,
  type PostgresCursor,
  type PostgresPool,
  type PostgresPoolClient,
  type PostgresQueryResult,
  Migrator,
} from 'kysely';
import { type ClientConfig, Pool, type PoolClient } from 'pg';
import {
  breakWhenSilent,
  END_WHEN_SILENT,
  openControlSession,
  type ControlSession,
  type Waiting,
} from './connections.ts';
import type { Rounds } from '../lib/rounds.ts';
import { problemOfContents, readContents, type Contents } from './contents.ts';
import type { Channel, OnNotification } from './events.ts';
import type { Db, Tables, Tx } from './tables.ts';
import { MIGRATIONS_DIRECTORY } from '../paths.ts';

export type Store = {
  db: Db;
  /** For the statements that answer many requests at once; see `coalesced-reads.ts`. */
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
type Expected = {
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
        onError(asError(error));
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

// Prepares statements, so that the metadata database keeps their plans: planning one takes longer
// than executing it.

/** The most plans of a connection; further statements are planned each time. */
const MAX_PLANS = 500;

/**
 * A pool for the query builder that prepares statements at their first use on a connection. Those
 * without values are not prepared: `begin` needs no plan.
 */
function preparing(pool: Pool): PostgresPool {
  const names = new Map<string, string>();
  const wrapped = new WeakMap<PoolClient, PostgresPoolClient>();

  const nameOf = (text: string): string | undefined => {
    if (!names.has(text) && names.size < MAX_PLANS) names.set(text, `plan_${names.size}`);
    return names.get(text);
  };

  const wrap = (client: PoolClient): PostgresPoolClient => {
    function query<Row>(
      text: string,
      values: readonly unknown[],
    ): Promise<PostgresQueryResult<Row>>;
    function query<Row>(cursor: PostgresCursor<Row>): PostgresCursor<Row>;
    function query(text: unknown, values: readonly unknown[] = []): unknown {
      if (typeof text !== 'string')
        throw new Error('the metadata database is read without cursors');
      return client.query(
        values.length === 0 ? { text } : { name: nameOf(text), text, values: [...values] },
      );
    }
    return { query, release: () => client.release() };
  };

  return {
    connect: async () => {
      const client = await pool.connect();
      const known = wrapped.get(client) ?? wrap(client);
      wrapped.set(client, known);
      return known;
    },
    end: () => pool.end(),
  };
}

// Brings the tables of the metadata database up to date.

/**
 * Uses its own connection, because a migration may take longer than the
 * time limit of other statements.
 */
async function migrateTables(
  connection: ClientConfig,
  onError: (error: Error) => void,
): Promise<void> {
  const pool = new Pool({
    ...connection,
    max: 1,
    application_name: 'howdah control plane, migrations',
  });
  pool.on('error', onError);
  pool.on('connect', (client) => client.on('error', onError));
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
  const migrator = new Migrator({ db, provider: { getMigrations: readMigrations } });
  const { error, results } = await migrator.migrateToLatest();
  await db.destroy();
  const failed = results?.find(({ status }) => status === 'Error')?.migrationName ?? null;
  if (error !== undefined) throw new Error(whyNotMigrated(error, failed), { cause: error });
}

/**
 * Explains why this version cannot use the metadata database.
 *
 * @param failed the migration that failed; null: none did
 */
export function whyNotMigrated(error: unknown, failed: string | null): string {
  const reason = messageOf(error);
  const unknown = /previously executed migration (\S+) is missing/.exec(reason)?.[1];
  if (unknown !== undefined)
    return (
      'the metadata database belongs to a newer version of Howdah: ' +
      `it has the migration ${unknown}, which this version does not know. ` +
      'Start that version or a newer one, or restore a backup of the metadata database that ' +
      'this version made (howdah restore-control)'
    );
  const which =
    failed === null
      ? 'the migrations of the metadata database could not be run'
      : `migration ${failed} of the metadata database failed`;
  return (
    `${which}: ${reason}. Nothing was changed: remove the cause and run howdah up again, ` +
    'or go on with the version before meanwhile'
  );
}

async function readMigrations() {
  const names = (await readdir(MIGRATIONS_DIRECTORY))
    .filter((name) => name.endsWith('.sql'))
    .toSorted();
  const loaded = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(MIGRATIONS_DIRECTORY, name), 'utf8');
      return [
        name.replace(/\.sql$/, ''),
        { up: async (db: Kysely<unknown>) => void (await sql.raw(text).execute(db)) },
      ] as const;
    }),
  );
  return Object.fromEntries(loaded);
}
