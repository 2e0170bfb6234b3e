/** The tables of the control plane's records, and the connections to them. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Addon, Environment, OperationKind, OperationStatus, OperationStep, Role, ServiceType, LiveStatus } from '@howdah/contract';
import type { Origin } from '../engine/engine.ts';
import { Kysely, Migrator, PostgresDialect, sql, type ColumnType, type Generated, type JSONColumnType, type Transaction } from 'kysely';
import { Client, Pool, type ClientConfig } from 'pg';
import { MIGRATIONS_DIRECTORY } from '../paths.ts';

type Moment = ColumnType<Date, Date | string, Date | string>;

export interface Tables {
  projects: { id: string; name: string; created: Generated<Date> };
  api_keys: {
    public_key: string;
    project_id: string;
    name: string;
    role: Role;
    secret_hash: Buffer;
    created: Generated<Date>;
    expires_at: Moment | null;
    revoked_at: Moment | null;
    last_used: Moment | null;
  };
  regions: { code: string; last_port: number };
  services: {
    id: string;
    project_id: string | null;
    region_code: string;
    name: string;
    service_type: ServiceType;
    addons: Addon[];
    environment: Environment;
    created: Generated<Date>;
    host: string;
    port: number;
    resource_id: string;
    cpu_millis: number | null;
    memory_gbs: number | null;
    power: 'running' | 'paused';
    deleting: Generated<boolean>;
    first_verifier: string | null;
    origin: ColumnType<Origin | null, string | null, string | null>;
    deleted_at: Moment | null;
    reachable: Generated<boolean>;
    memory_mb: number | null;
    milli_cpu: number | null;
    storage_mb: number | null;
    operation_id: string | null;
    status: LiveStatus;
    doc: string;
    due_at: Generated<Date | null>;
    attempt: Generated<number>;
    lease_token: string | null;
    lease_until: Moment | null;
  };
  operations: {
    id: string;
    project_id: string | null;
    service_id: string;
    kind: OperationKind;
    status: OperationStatus;
    requested_by: string;
    steps: JSONColumnType<OperationStep[]>;
    error: string | null;
    created: Generated<Date>;
    finished: Moment | null;
  };
  samples: {
    service_id: string;
    at: Moment;
    cpu_millis: number;
    memory_bytes: ColumnType<string, number, number>;
    storage_bytes: ColumnType<string, number, number>;
    connections: number;
    transactions_per_second: number;
  };
}

/** Either the database or a transaction in it: every statement of the store takes one. */
export type Db = Kysely<Tables>;
export type Tx = Transaction<Tables>;

export type Store = {
  db: Db;
  /** For the few statements that are prepared by name and read by many requests at once; see `read.ts`. */
  pool: Pool;
  /** Calls back with the id of each service that anybody changed; see {@link poke}. Ends with the store. */
  listen: (onPoke: (id: string) => void) => void;
  close: () => Promise<void>;
};

const POKE_CHANNEL = 'howdah_poke';
/** "howdah" as a number: the key of the lock that the control plane holds while it runs. */
const CONTROL_LOCK = 0x686f77646168n;

/** Another control plane works on the same records. */
export class AlreadyRunning extends Error {}

/**
 * Connects, brings the tables up to date, and makes sure that no other control plane works on them.
 *
 * @param onError told of connections that break; they are made again
 * @throws AlreadyRunning
 */
export async function openStore(connection: ClientConfig, onError: (error: Error) => void): Promise<Store> {
  // Few connections win on few cores: statements queue here rather than compete there (performance.md, section 5).
  const pool = new Pool({ ...connection, max: 8, application_name: 'howdah control plane' });
  pool.on('error', onError);
  // The pool looks after idle connections only; one in use whose server dies would end this process.
  pool.on('connect', (client) => client.on('error', onError));
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
  let onPoke: (id: string) => void = () => undefined;
  let session = await openSession(connection, onError, (id) => onPoke(id));
  let closing = false;

  const keepSession = (current: Client): void => {
    current.once('end', () => void reconnect());
  };
  const reconnect = async (): Promise<void> => {
    while (!closing) {
      try {
        session = await openSession(connection, onError, (id) => onPoke(id));
        keepSession(session);
        return;
      } catch (error) {
        onError(error instanceof Error ? error : new Error(String(error)));
        await sleep(RECONNECT_MS);
      }
    }
  };

  try {
    await migrate(db);
  } catch (error) {
    await session.end();
    await db.destroy();
    throw error;
  }
  keepSession(session);
  return {
    db,
    pool,
    listen: (listener) => {
      onPoke = listener;
    },
    close: async () => {
      closing = true;
      await session.end();
      await db.destroy();
    },
  };
}

const RECONNECT_MS = 500;

/** The connection that holds the control plane's lock and hears of pokes. */
async function openSession(connection: ClientConfig, onError: (error: Error) => void, onPoke: (id: string) => void): Promise<Client> {
  const session = new Client({ ...connection, application_name: 'howdah control plane, notifications' });
  session.on('error', onError);
  session.on('notification', ({ payload }) => onPoke(payload ?? ''));
  await session.connect();
  try {
    const { rows } = await session.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [String(CONTROL_LOCK)]);
    if (rows[0]?.locked !== true) throw new AlreadyRunning('another control plane is using these records; stop it first (howdah down)');
    await session.query(`listen ${POKE_CHANNEL}`);
    return session;
  } catch (error) {
    await session.end();
    throw error;
  }
}

/** Asks for a look at a service, when the transaction commits. A hint: a lost one is made up for by the timer. */
export async function poke(tx: Db, id: string): Promise<void> {
  await sql`select pg_notify(${POKE_CHANNEL}, ${id})`.execute(tx);
}

async function migrate(db: Db): Promise<void> {
  const migrator = new Migrator({ db, provider: { getMigrations } });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) throw new Error('the tables of the records could not be brought up to date', { cause: error });
}

async function getMigrations() {
  const names = (await readdir(MIGRATIONS_DIRECTORY)).filter((name) => name.endsWith('.sql')).toSorted();
  const loaded = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(MIGRATIONS_DIRECTORY, name), 'utf8');
      return [name.replace(/\.sql$/, ''), { up: async (db: Kysely<unknown>) => void (await sql.raw(text).execute(db)) }] as const;
    }),
  );
  return Object.fromEntries(loaded);
}
