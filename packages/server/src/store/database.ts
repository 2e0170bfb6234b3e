/** The tables of the control plane's records, and the connections to them. */
import { readdir, readFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  Addon,
  DeliveryStatus,
  DrillKind,
  Environment,
  ErrorCode,
  EventType,
  LiveStatus,
  OperationKind,
  OperationStatus,
  OperationStep,
  PeeringStatus,
  ReadReplicaSet,
  Role,
  ServiceType,
  Warning,
} from '@howdah/contract';
import type { Member, Origin } from '../engine/engine.ts';
import {
  Kysely,
  Migrator,
  PostgresDialect,
  sql,
  type ColumnType,
  type Generated,
  type JSONColumnType,
  type RawBuilder,
  type Transaction,
} from 'kysely';
import { Client, Pool, type ClientConfig } from 'pg';
import { MIGRATIONS_DIRECTORY } from '../paths.ts';
import { preparing } from './prepared.ts';

type Moment = ColumnType<Date, Date | string, Date | string>;

export interface Tables {
  projects: {
    id: string;
    name: string;
    created: Generated<Date>;
    operator: Generated<boolean>;
    max_services: Generated<number | null>;
    max_replica_sets: Generated<number | null>;
    max_cpu_millis: Generated<number | null>;
    max_memory_gbs: Generated<number | null>;
  };
  project_usage: {
    project_id: string;
    services: number;
    replica_sets: number;
    cpu_millis: number;
    memory_gbs: number;
  };
  api_keys: {
    public_key: string;
    project_id: string;
    name: string;
    role: Role;
    secret_hash: Buffer;
    dry_run_only: Generated<boolean>;
    fork_only: Generated<boolean>;
    created_by: Generated<string | null>;
    created: Generated<Date>;
    expires_at: Moment | null;
    revoked_at: Moment | null;
    last_used: Moment | null;
  };
  kept_answers: {
    public_key: string;
    lookup: Buffer;
    request: Buffer;
    sealed: Buffer;
    created: Generated<Date>;
  };
  console_tokens: {
    token_hash: string;
    kind: 'link' | 'session';
    public_key: string;
    expires_at: Moment;
  };
  regions: { code: string; last_port: number };
  promised_ports: { region_code: string; port: number; holder: string };
  services: {
    id: string;
    project_id: string | null;
    region_code: string;
    name: string;
    service_type: ServiceType;
    addons: Addon[];
    environment: Environment;
    created: Generated<Date>;
    created_by: Generated<string | null>;
    host: string;
    port: number;
    resource_id: string;
    cpu_millis: number | null;
    memory_gbs: number | null;
    storage_gb: number;
    purge: Generated<boolean>;
    power: 'running' | 'paused';
    deleting: Generated<boolean>;
    first_verifier: string | null;
    origin: ColumnType<Origin | null, string | null, string | null>;
    deleted_at: Moment | null;
    pooler: Generated<boolean>;
    pooler_port: Generated<number | null>;
    replica_count: Generated<number>;
    sync_replica_count: Generated<number>;
    leave_member: number | null;
    drill: DrillKind | null;
    members: ColumnType<Member[], string | undefined, string>;
    primary_member: Generated<number>;
    vpc_id: string | null;
    vpc_address: string | null;
    allowed_networks: string[] | null;
    parent_id: Generated<string | null>;
    read_replica_sets: ColumnType<ReadReplicaSet[], string | undefined, string>;
    reachable: Generated<boolean>;
    memory_mb: number | null;
    milli_cpu: number | null;
    storage_mb: number | null;
    warnings: ColumnType<Warning[], string | undefined, string>;
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
  vpcs: {
    /** Digits, as are all ids of these two tables: a bigint is read as text. */
    id: Generated<string>;
    project_id: string;
    region_code: string;
    name: string;
    cidr: string;
    created: Generated<Date>;
    last_host: Generated<number>;
    deleting: Generated<boolean>;
    wanted: Generated<number>;
    made: Generated<number>;
  };
  peerings: {
    id: Generated<string>;
    vpc_id: string;
    peer_account_id: string;
    peer_region_code: string;
    peer_vpc_id: string;
    asked: boolean;
    status: PeeringStatus;
    error_message: string | null;
    provisioned_id: string | null;
    created: Generated<Date>;
  };
  vpc_addresses: { vpc_id: string; address: string; service_id: string };
  events: {
    seq: ColumnType<string, never, never>;
    project_id: string;
    at: Date;
    type: EventType;
    doc: string;
  };
  event_horizon: { pruned: ColumnType<string, number, number> };
  webhooks: {
    id: string;
    project_id: string;
    url: string;
    types: EventType[];
    secret: Buffer;
    created: Generated<Date>;
    fanned_out: ColumnType<string, string, string>;
    lease_until: Moment | null;
  };
  deliveries: {
    id: ColumnType<string, never, never>;
    webhook_id: string;
    message_id: string;
    type: EventType;
    body: string;
    status: Generated<DeliveryStatus>;
    attempts: Generated<number>;
    next_at: Generated<Date>;
    response_status: number | null;
    error: string | null;
    created: Generated<Date>;
    finished: Moment | null;
  };
  audit_log: {
    id: ColumnType<string, never, never>;
    at: Generated<Date>;
    project_id: string;
    public_key: string | null;
    address: string;
    call: string;
    method: string;
    path: string;
    service_id: string | null;
    operation_id: string | null;
    status: number;
    code: ErrorCode | null;
    request_id: string;
    count: Generated<number>;
    last_at: Generated<Date | null>;
  };
  samples: {
    service_id: string;
    node: number;
    at: Moment;
    cpu_millis: number;
    memory_bytes: ColumnType<string, number, number>;
    storage_bytes: ColumnType<string, number, number>;
    connections: number;
    transactions_per_second: number;
    lag_bytes: ColumnType<string | null, number | null, number | null>;
    lag_seconds: number | null;
  };
}

/** Either the database or a transaction in it: every statement of the store takes one. */
export type Db = Kysely<Tables>;
export type Tx = Transaction<Tables>;

export type Store = {
  db: Db;
  /** For the few statements that are prepared by name and read by many requests at once; see `read.ts`. */
  pool: Pool;
  /**
   * Calls back with what each notification of a channel names; with null when some may have been lost, since the connection that hears
   * them broke. Ends with the store.
   */
  listen: (channel: Channel, listener: OnNotification) => void;
  close: () => Promise<void>;
};

/** What is told to every control plane: a service that wants a look (its id), VPCs that changed, new events (of a project), a key that changed (its public half). */
const CHANNELS = ['howdah_service', 'howdah_vpcs', 'howdah_event', 'howdah_key'] as const;
export type Channel = (typeof CHANNELS)[number];
export type OnNotification = (payload: string | null) => void;

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
export async function openStore(
  connection: ClientConfig,
  onError: (error: Error) => void,
): Promise<Store> {
  // Few connections win on few cores: statements queue here rather than compete there (performance.md, section 5).
  const pool = new Pool({
    ...neverSilent(connection),
    max: 8,
    application_name: 'howdah control plane',
    // oxlint-disable-next-line typescript/no-misused-promises -- the pool waits for what comes back, which its types do not say
    onConnect: (client) => client.query(GIVE_UP),
  });
  pool.on('error', onError);
  // The pool looks after idle connections only; one in use whose server dies would end this process.
  pool.on('connect', (client) => client.on('error', onError));
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: preparing(pool) }) });
  const callbacks: [Channel, OnNotification][] = [];
  const onNotification = (channel: string, payload: string): void => {
    for (const [wanted, listener] of callbacks) if (wanted === channel) listener(payload);
  };
  let session = await openSession(connection, onError, onNotification);
  let closing = false;

  const keepSession = (current: Client): void => {
    current.once('end', () => void reconnect());
  };
  const reconnect = async (): Promise<void> => {
    while (!closing) {
      try {
        session = await openSession(connection, onError, onNotification);
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
    await migrate(connection, onError);
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
 * A statement that the metadata database has not answered for so long never will be: what lies between may have dropped the connection without a
 * word. Then it breaks, here as there, where nobody else would ever hear of it: a statement, a transaction or a session that lasts longer
 * ends with all it has locked.
 */
const SILENCE_MS = 30_000;
const GIVE_UP = ['statement_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout']
  .map((setting) => `set ${setting} = ${SILENCE_MS}`)
  .join(';');

/** Of a connection that breaks when nothing has come or gone on it for {@link SILENCE_MS}; the pool ends idle ones long before. */
function neverSilent(connection: ClientConfig): ClientConfig {
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

/** The connection that holds the control plane's lock and hears of notifications. */
async function openSession(
  connection: ClientConfig,
  onError: (error: Error) => void,
  onNotification: (channel: string, payload: string) => void,
): Promise<Client> {
  const session = new Client({
    ...neverSilent(connection),
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
    await session.query(GIVE_UP);
    return session;
  } catch (error) {
    await session.end();
    throw error;
  }
}

/**
 * Lets a transaction commit without waiting for the disk: for what is found out again when a crash of the metadata database takes it back.
 * A later commit that does wait makes it durable too.
 */
export async function commitWithoutFlush(tx: Tx): Promise<void> {
  await sql`set local synchronous_commit = off`.execute(tx);
}

/** Asks for a look at a service, when the transaction commits. A hint: a lost one is made up for by the timer. */
export async function notifyService(tx: Db, id: string): Promise<void> {
  await askForLook(id).execute(tx);
}

/** The statement of {@link notifyService}. */
export const askForLook = (id: string): RawBuilder<unknown> =>
  sql`select pg_notify('howdah_service', ${id})`;

/** Asks for a look at the VPCs, when the transaction commits. A hint, too. */
export async function notifyVpcs(tx: Db): Promise<void> {
  await sql`notify howdah_vpcs`.execute(tx);
}

/** On a connection of its own: a migration may take longer than any other statement. */
async function migrate(connection: ClientConfig, onError: (error: Error) => void): Promise<void> {
  const pool = new Pool({
    ...connection,
    max: 1,
    application_name: 'howdah control plane, migrations',
  });
  pool.on('error', onError);
  pool.on('connect', (client) => client.on('error', onError));
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
  const migrator = new Migrator({ db, provider: { getMigrations } });
  const { error, results } = await migrator.migrateToLatest();
  await db.destroy();
  const failed = results?.find(({ status }) => status === 'Error')?.migrationName ?? null;
  if (error !== undefined) throw new Error(whyNotMigrated(error, failed), { cause: error });
}

/** Why the metadata database cannot be used by this version, and what to do. @param failed the migration that failed; null: none did */
export function whyNotMigrated(error: unknown, failed: string | null): string {
  const reason = error instanceof Error ? error.message : String(error);
  const unknown = /previously executed migration (\S+) is missing/.exec(reason)?.[1];
  if (unknown !== undefined)
    return `the metadata database belongs to a newer version of Howdah: it has the migration ${unknown}, which this version does not know. Start that version or a newer one, or restore a backup of the metadata database that this version made (howdah restore-control)`;
  const which =
    failed === null
      ? 'the migrations of the metadata database could not be run'
      : `migration ${failed} of the metadata database failed`;
  return `${which}: ${reason}. Nothing was changed: remove the cause and run howdah up again, or go on with the version before meanwhile`;
}

async function getMigrations() {
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
