/**
 * A copy of what the control plane itself keeps, in one file: its metadata database, its CA, the
 * first key, and the key to secrets. Databases have backups of their own; with this file a control
 * plane that has lost its metadata database takes them over again.
 */
import { readdir, readFile, mkdir, rm } from 'node:fs/promises';
import { createReadStream, createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { messageOf } from '@howdah/contract/thrown';
import type { Client, ClientConfig, Pool, PoolClient } from 'pg';
import { renameDurably, writeDurably } from '../../../lib/durable-files.ts';
import { findSite, prepareMachine } from '../host/machine.ts';
import { findSites } from './sites.ts';
import { exists } from '../../../lib/processes.ts';
import { ensureStoreRunning, stopStore, storeConnection } from '../postgres/store-instance.ts';
import { createTemplates } from '../postgres/templates.ts';
import {
  credentialsPath,
  findControl,
  readRegionPlaces,
  recordRegionPlaces,
  type RegionPlace,
} from '../../../installation.ts';
import { nameOf, readMetadataRecord } from '../../../metadata-record.ts';
import { QUIET } from '../../../lib/log.ts';
import { createRounds } from '../../../lib/rounds.ts';
import { TUNING } from '../../../lib/tuning.ts';
import { inCommandSession } from '../../../store/command-session.ts';
import { openStore } from '../../../store/database.ts';

/**
 * The first line of the file. The lines after it are {@link Row}s, the last one {@link End}: a file
 * that was interrupted has none.
 */
type Head = {
  howdah: 'control plane';
  migrations: string[];
  files: Record<FileName, string>;
  /** Where further regions are; without, there were none. */
  regions?: RegionPlace[];
  sequences: Record<string, string>;
};
type Row = { table: string; row: object };
type End = { rows: number };

/** Files below HOME that are backed up with the metadata database, and their modes. */
const FILES = {
  'ca/ca.pem': 0o644,
  'ca/ca.key': 0o600,
  'credentials.json': 0o600,
  'secrets.key': 0o600,
} as const;
type FileName = keyof typeof FILES;
const FILE_NAMES = Object.keys(FILES).filter((name): name is FileName => name in FILES);
const BATCH = 500;

/**
 * Writes the file: the metadata database of one moment. It holds secrets and is its owner's alone.
 *
 * @returns how many rows it has
 * @throws Error when the control plane does not run, or the metadata database is not our own
 */
export async function backupControl(home: string, path: string): Promise<number> {
  await refuseElsewhere(home);
  const target = createWriteStream(`${path}.new`, { mode: 0o600, flush: true });
  const rows = await writeControl(home, await ownDatabase(home), target, () => true);
  await renameDurably(`${path}.new`, path);
  return rows;
}

/** @throws Error when the metadata database is in a PostgreSQL of the operator */
async function refuseElsewhere(home: string): Promise<void> {
  const place = (await readMetadataRecord(home))?.place ?? null;
  if (place !== null)
    throw new Error(
      `the metadata database of ${home} is ${nameOf(place)}: back it up and restore it with ` +
        'pg_dump and pg_restore, together with ca, credentials.json, secrets.key and ' +
        `metadata-database.json in ${home}`,
    );
}

/** Our own metadata database. @throws Error when the control plane does not run */
async function ownDatabase(home: string): Promise<ClientConfig> {
  const site = await findSite(home);
  if (site === null || (await findControl(home)) === null)
    throw new Error(`the control plane of ${home} is not running: howdah up starts it`);
  return storeConnection(site);
}

/**
 * The same without the samples of metrics, which are large and change all the time.
 *
 * @param databaseUrl another metadata database than our own
 */
export async function readControl(home: string, databaseUrl: string | null): Promise<Buffer> {
  const parts: Buffer[] = [];
  const target = new Writable({
    write: (part: Buffer, _encoding, done) => {
      parts.push(part);
      done();
    },
  });
  const database =
    databaseUrl === null ? await ownDatabase(home) : { connectionString: databaseUrl };
  await writeControl(home, database, target, (table) => table !== 'samples');
  return Buffer.concat(parts);
}

async function writeControl(
  home: string,
  database: ClientConfig,
  target: Writable,
  isWanted: (table: string) => boolean,
): Promise<number> {
  return inCommandSession(database, 'howdah backup-control', async (client) => {
    await client.query('begin isolation level repeatable read, read only');
    let rows = 0;
    const lines = async function* (): AsyncGenerator<string> {
      yield `${JSON.stringify(await headOf(client, home))}\n`;
      for (const table of (await tablesOf(client)).filter(isWanted)) {
        await client.query(
          `declare rows no scroll cursor for select to_jsonb(t) as row from ${table} as t`,
        );
        for (;;) {
          const { rows: batch } = await client.query<{ row: object }>(`fetch ${BATCH} from rows`);
          if (batch.length === 0) break;
          rows += batch.length;
          for (const { row } of batch) yield `${JSON.stringify({ table, row } satisfies Row)}\n`;
        }
        await client.query('close rows');
      }
      yield `${JSON.stringify({ rows } satisfies End)}\n`;
    };
    await pipeline(Readable.from(lines()), createGzip(), target);
    return rows;
  });
}

/**
 * Restores metadata database, CA and first key into a home that has none. Existing databases,
 * running or not, belong to it from its next start on.
 *
 * @param lostData what becomes of services whose data is not here
 * @returns a sentence for each contradiction: services whose data is gone, and data that is newer
 *   than the backup
 * @throws Error when there is a metadata database already, or the file is incomplete or of
 *   another version
 */
export async function restoreControl(
  home: string,
  path: string,
  lostData: LostData = forgetServices,
): Promise<string[]> {
  if ((await findControl(home)) !== null)
    throw new Error(`the control plane of ${home} runs: stop it first (howdah down)`);
  await refuseElsewhere(home);
  const head = await checkWhole(path);
  for (const name of FILE_NAMES) {
    const there = (await exists(join(home, name)))
      ? await readFile(join(home, name), 'utf8')
      : null;
    if (there !== null && there !== head.files[name])
      throw new Error(
        `${join(home, name)} is there, and another than in ${path}: ` +
          'a restore is for an empty HOWDAH_HOME',
      );
  }
  const machine = await prepareMachine(home);
  const connection = await ensureStoreRunning(machine, createTemplates(machine));
  try {
    await recordRegionPlaces(home, head.regions ?? []);
    const problems = await load(connection, path, head, await findDirectories(home), lostData);
    await mkdir(join(home, 'ca'), { recursive: true, mode: 0o700 });
    for (const name of FILE_NAMES)
      await writeDurably(join(home, name), head.files[name], FILES[name]);
    return problems;
  } finally {
    await stopStore(machine);
  }
}

/**
 * Copies a metadata database to an empty one, in one transaction; server logs of removed servers
 * are left out.
 */
export async function copyControl(
  home: string,
  from: ClientConfig,
  to: ClientConfig,
): Promise<void> {
  const path = join(home, 'moving-control.gz');
  const target = createWriteStream(path, { mode: 0o600, flush: true });
  try {
    await writeControl(home, from, target, () => true);
    await load(to, path, await checkWhole(path), [], async () => []);
  } finally {
    await rm(path, { force: true });
  }
}

/** The directories of services in a region; null: the data of the region is not there. */
type Directories = { region: string; ids: string[] | null };

async function findDirectories(home: string): Promise<Directories[]> {
  const sites = await findSites(home);
  return Promise.all(
    sites.map(async ({ code, site }) => ({
      region: code,
      ids:
        site === null
          ? null
          : (await readdir(site.layout.services)).filter((entry) => !entry.endsWith('.new')),
    })),
  );
}

async function load(
  connection: ClientConfig,
  path: string,
  head: Head,
  directories: readonly Directories[],
  lostData: LostData,
): Promise<string[]> {
  // Makes the tables, and keeps everybody else out.
  const rounds = createRounds(TUNING.rounds, QUIET);
  const store = await openStore(connection, rounds, () => undefined);
  const client = await store.pool.connect();
  try {
    const migrations = await migrationsOf(client);
    if (migrations.join() !== head.migrations.join())
      throw new Error(
        `${path} was written by another version (its migrations end with ` +
          `${head.migrations.at(-1)}, these with ${migrations.at(-1)}): ` +
          'restore it with that one, then upgrade',
      );
    const { rows: projects } = await client.query('select from projects limit 1');
    if (projects.length > 0)
      throw new Error('the metadata database is not empty: restore into an empty HOWDAH_HOME');
    await client.query('begin');
    const { suspend, resume } = await rulesOf(client);
    await client.query(suspend);
    for await (const { table, rows } of batchesOf(path)) {
      await client.query(
        `insert into ${table} overriding system value select * ` +
          `from jsonb_populate_recordset(null::${table}, $1)`,
        [JSON.stringify(rows)],
      );
    }
    for (const [name, value] of Object.entries(head.sequences))
      await client.query('select setval($1, $2)', [name, value]);
    await client.query(resume);
    const problems = await compare(client, directories, lostData);
    await client.query('commit');
    return problems;
  } finally {
    // A failed connection is not given back with a transaction open.
    client.release(true);
    await store.close();
  }
}

/**
 * Decides what becomes of services whose data is not here. Those of a region whose disk is away are
 * not among them: the control plane does not serve the region until it is there.
 *
 * @returns a sentence for each
 */
export type LostData = (
  client: PoolClient,
  here: { directories: readonly string[]; regions: readonly string[] },
) => Promise<string[]>;

/** A service without data would be recreated empty: its row is deleted. */
const forgetServices: LostData = async (client, { directories, regions }) => {
  const { rows } = await client.query<{ id: string; name: string }>(
    `delete from services where region_code = any ($2) and id <> all ($1) and kept is null
     returning id, name`,
    [directories, regions],
  );
  return rows.map(
    ({ id, name }) => `service ${id} (${name}): its data is not here; it is no longer known`,
  );
};

async function compare(
  client: PoolClient,
  regions: readonly Directories[],
  lostData: LostData,
): Promise<string[]> {
  const found = regions.filter(({ ids }) => ids !== null).map(({ region }) => region);
  const directories = regions.flatMap(({ ids }) => ids ?? []);
  const lost = await lostData(client, { directories, regions: found });
  await client.query(
    "update operations o set status = 'failed', error = 'its data was not there when the " +
      "metadata database was restored', finished = clock_timestamp() where finished is null " +
      'and not exists (select from services s where s.id = o.service_id)',
  );
  const { rows: known } = await client.query<{ id: string }>('select id from services');
  const ids = new Set(known.map(({ id }) => id));
  return [
    ...lost,
    ...directories
      .filter((id) => !ids.has(id))
      .map(
        (id) =>
          `the directory of ${id} was made after the backup; ` +
          'nobody knows of it, and it was left as it is',
      ),
  ];
}

/**
 * The statements that suspend foreign keys and triggers: rows come in no order that keys would ask
 * for, and are no changes. The owner of the tables may do it, who may be no superuser.
 */
async function rulesOf(client: PoolClient): Promise<{ suspend: string; resume: string }> {
  const { rows } = await client.query<{ suspend: string; resume: string }>(
    `select format('alter table %s drop constraint %I', conrelid::regclass, conname) as suspend,
       format('alter table %s add constraint %I %s', conrelid::regclass, conname,
         pg_get_constraintdef(oid)) as resume
     from pg_constraint where contype = 'f' and connamespace = 'public'::regnamespace
     union all
     select distinct format('alter table %s disable trigger user', tgrelid::regclass),
       format('alter table %s enable trigger user', tgrelid::regclass)
     from pg_trigger where not tgisinternal`,
  );
  return {
    suspend: rows.map((row) => row.suspend).join(';'),
    resume: rows.map((row) => row.resume).join(';'),
  };
}

type Queryable = Pick<Client, 'query'> | Pick<Pool, 'query'>;

async function headOf(client: Client, home: string): Promise<Head> {
  const read = async (name: FileName): Promise<string> => readFile(join(home, name), 'utf8');
  const { rows } = await client.query<{ name: string; value: string }>(
    "select format('%I.%I', schemaname, sequencename) as name, last_value::text as value " +
      "from pg_sequences where schemaname = 'public' and last_value is not null",
  );
  return {
    howdah: 'control plane',
    migrations: await migrationsOf(client),
    files: {
      'ca/ca.pem': await read('ca/ca.pem'),
      'ca/ca.key': await read('ca/ca.key'),
      'credentials.json': await readFile(credentialsPath(home), 'utf8'),
      'secrets.key': await read('secrets.key'),
    },
    regions: (await readRegionPlaces(home)).slice(1),
    sequences: Object.fromEntries(rows.map(({ name, value }) => [name, value])),
  };
}

async function migrationsOf(client: Queryable | PoolClient): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    'select name from kysely_migration order by name',
  );
  return rows.map(({ name }) => name);
}

/**
 * All tables but those that say which version the others are of, and the server logs of services:
 * they are large, and have the statements of users in them.
 */
async function tablesOf(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select format('%I', tablename) as name from pg_tables where schemaname = 'public'
     and tablename not like 'kysely%' and tablename <> 'kept_logs' order by 1`,
  );
  return rows.map(({ name }) => name);
}

async function* linesOf(path: string): AsyncGenerator<object> {
  for await (const line of createInterface({
    input: createReadStream(path).pipe(createGunzip()),
  })) {
    const parsed: unknown = JSON.parse(line);
    if (typeof parsed === 'object' && parsed !== null) yield parsed;
  }
}

/** Reads the file to its end before anything is done with it. */
async function checkWhole(path: string): Promise<Head> {
  let head: Head | null = null;
  let [rows, end] = [0, -1];
  try {
    // A broken stream is reported to its reader only if it is read as a stream.
    await pipeline(createReadStream(path), createGunzip(), async (text) => {
      for await (const _ of text);
    });
    for await (const line of linesOf(path)) {
      if (isHead(line)) head = line;
      else if (isRow(line)) rows++;
      else if ('rows' in line) end = Number(line.rows);
    }
  } catch (error) {
    throw new Error(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
  if (head === null || end !== rows)
    throw new Error(`${path} is no backup of a control plane, or is incomplete`);
  return head;
}

const isHead = (line: object): line is Head =>
  'howdah' in line &&
  line.howdah === 'control plane' &&
  'files' in line &&
  'migrations' in line &&
  'sequences' in line;
const isRow = (line: object): line is Row => 'table' in line && 'row' in line;

async function* batchesOf(path: string): AsyncGenerator<{ table: string; rows: object[] }> {
  let batch: { table: string; rows: object[] } | null = null;
  for await (const line of linesOf(path)) {
    if (!isRow(line)) continue;
    if (batch !== null && (batch.table !== line.table || batch.rows.length >= BATCH)) {
      yield batch;
      batch = null;
    }
    batch ??= { table: line.table, rows: [] };
    batch.rows.push(line.row);
  }
  if (batch !== null) yield batch;
}
