/** The checks before an import: everything that is in the way, at once, before anything is done. */
import { isReservedRole } from '@howdah/contract/types';
import type { ClientBase } from 'pg';
import { Failure } from '../exit.ts';
import {
  readExtensions,
  readImpossible,
  readRoles,
  readSchemas,
  readServer,
  readTables,
  readTimescale,
  shownOf,
  type Extension,
  type Server,
  type Table,
  type Timescale,
} from './catalog.ts';
import { listed, sizeOf } from './steps.ts';

/** The oldest PostgreSQL that sources may have: it has all columns of catalogs that are read. */
const OLDEST = 12;

type Impossible = Awaited<ReturnType<typeof readImpossible>>;

export type Source = {
  server: Server;
  major: number;
  extensions: Extension[];
  roles: string[];
  schemas: string[];
  tables: Table[];
  timescale: Timescale | null;
  /** Texts about objects that are not imported, although the import works. */
  notes: string[];
};

/**
 * Examines the source.
 *
 * @throws Failure usage with everything that is in the way
 */
export async function examineSource(client: ClientBase, follow: boolean): Promise<Source> {
  const server = await readServer(client);
  const major = Math.floor(server.version / 10_000);
  if (major < OLDEST)
    throw new Failure(
      `the source runs PostgreSQL ${major}; sources need ${OLDEST} or newer: import a dump of it`,
      'usage',
    );
  const timescale = await readTimescale(client);
  const tables = await readTables(client, timescale?.hypertables ?? []);
  const impossible = await readImpossible(client);
  const problems = [
    ...problemsOf(tables, timescale, impossible),
    ...(follow ? problemsOfFollowing(server, tables) : []),
  ];
  if (problems.length > 0)
    throw new Failure(
      `the source cannot be imported${follow ? ' with --follow' : ''}; nothing was ` +
        `done:\n${problems.map((one) => `  ${one}`).join('\n')}`,
      'usage',
    );
  const [extensions, all] = [await readExtensions(client), await readRoles(client)];
  const roles = all.filter((name) => !isReservedRole(name));
  const notes = [
    ...notesOf(impossible, timescale),
    ...reservedNote(all.filter((name) => isReservedRole(name))),
  ];
  const schemas = await readSchemas(client);
  return { server, major, extensions, roles, schemas, tables, timescale, notes };
}

function problemsOf(
  tables: readonly Table[],
  timescale: Timescale | null,
  { foreign, untrusted }: Impossible,
): string[] {
  const unreadable = tables.filter(({ isReadable }) => !isReadable).map(shownOf);
  const { aggregates, compressed } = timescale?.refused ?? { aggregates: [], compressed: [] };
  return [
    ...refusal(unreadable, 'the user of the URL may not read', 'grant select on them'),
    ...refusal(foreign, 'foreign tables', 'drop them, or import a dump without them'),
    ...refusal(untrusted, 'functions in languages that only superusers may use', 'drop them'),
    ...refusal(
      aggregates,
      'continuous aggregates, which the Apache edition of TimescaleDB does not have',
      'drop them, and create views in their place',
    ),
    ...refusal(
      compressed,
      'compressed hypertables, which the Apache edition of TimescaleDB does not have',
      'decompress their chunks, and alter table … set (timescaledb.compress = false)',
    ),
  ];
}

function problemsOfFollowing(server: Server, tables: readonly Table[]): string[] {
  const setting = (is: boolean, text: string): string[] => (is ? [text] : []);
  return [
    ...setting(
      server.walLevel !== 'logical',
      `wal_level is ${server.walLevel}: set it to logical and restart the source (Amazon ` +
        'RDS: rds.logical_replication = 1)',
    ),
    ...setting(
      !server.mayReplicate,
      'the user of the URL may not replicate: alter role … replication (Amazon RDS: grant ' +
        'rds_replication to …)',
    ),
    ...setting(server.isStandby, 'the source is a standby: name its primary'),
    ...setting(
      !server.mayCreate,
      'the user of the URL may not create a publication: grant create on database … to …',
    ),
    ...setting(server.freeSlots < 1, 'no replication slot is free: raise max_replication_slots'),
    ...setting(
      server.largeObjects > 0,
      `${server.largeObjects} large objects, whose changes cannot be followed: import ` +
        'without --follow',
    ),
    ...tables.flatMap(({ cannotFollow, ...table }) =>
      cannotFollow === null ? [] : [`${shownOf(table)} ${cannotFollow}`],
    ),
  ];
}

function refusal(names: readonly string[], what: string, remedy: string): string[] {
  return names.length === 0 ? [] : [`${what}: ${listed(names)}; ${remedy}`];
}

/** Roles that would take the names of ours: their privileges cannot be restored either. */
export const reservedNote = (roles: readonly string[]): string[] =>
  roles.length === 0
    ? []
    : [
        'roles with names that Howdah needs are not imported, nor are their privileges: ' +
          `${listed(roles)}; ` +
          'rename them in the source to import them (alter role … rename to …)',
      ];

function notesOf({ triggers, servers }: Impossible, timescale: Timescale | null): string[] {
  const jobs = timescale?.jobs ?? [];
  return [
    ...(triggers.length === 0
      ? []
      : [`event triggers are not imported, only superusers may create them: ${listed(triggers)}`]),
    ...(servers.length === 0
      ? []
      : [`foreign servers are not imported, services connect to nobody: ${listed(servers)}`]),
    ...(jobs.length === 0 ? [] : [`jobs of TimescaleDB are not imported: ${listed(jobs)}`]),
  ];
}

/**
 * Checks the database of the service before anything is copied into it.
 *
 * @param limitGb the storage quota of the service; null: it has none
 * @throws Failure
 */
export async function examineTarget(
  client: ClientBase,
  source: Pick<Source, 'major' | 'extensions' | 'server'>,
  limitGb: number | null,
): Promise<void> {
  const { version } = await readServer(client);
  const major = Math.floor(version / 10_000);
  if (major < source.major)
    throw new Failure(
      `the source runs PostgreSQL ${source.major}, the service ${major}: a service needs ` +
        'the same version or a newer one',
      'conflict',
    );
  const { rows } = await client.query<{ name: string }>(
    'select name from pg_catalog.pg_available_extensions',
  );
  const available = new Set(rows.map(({ name }) => name));
  const missing = source.extensions.map(({ name }) => name).filter((name) => !available.has(name));
  if (missing.length > 0)
    throw new Failure(
      `this installation lacks extensions of the source: ${listed(missing)}; the ` +
        `administrator installs their packages (postgresql-${major}-…), or drop them from the ` +
        'source',
      'unavailableHere',
    );
  const { bytes } = source.server;
  if (limitGb !== null && bytes > limitGb * 1e9)
    throw new Failure(
      `the source has ${sizeOf(bytes)}, the storage quota of the service is ${limitGb} GB: ` +
        `howdah service resize … --storage-gb ${Math.ceil((bytes * 1.3) / 1e9)}`,
      'limit',
    );
}
