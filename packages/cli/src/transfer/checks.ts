/** The checks before an import: everything that is in the way, at once, before anything is done. */
import { isReservedRole } from '@howdah/contract/types';
import type { ClientBase } from 'pg';
import { Failure } from '../exit.ts';
import {
  readClosedSequences,
  readExtensions,
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
import { examine, leftOutLines, type InTheWay, type Script } from './script/examine.ts';
import { listed, sizeOf } from './steps.ts';

/** The oldest PostgreSQL that sources may have: it has all columns of catalogs that are read. */
const OLDEST = 12;

export type Source = {
  server: Server;
  major: number;
  extensions: Extension[];
  roles: string[];
  schemas: string[];
  tables: Table[];
  timescale: Timescale | null;
  /** Everything that is in the way. */
  problems: InTheWay[];
  /** Texts about objects that are not imported, although the import works. */
  notes: string[];
};

/**
 * Examines the source.
 *
 * @param readSchema the script of its schema, which the import would restore
 * @throws Failure usage when it is too old to be examined
 */
export async function examineSource(
  client: ClientBase,
  follow: boolean,
  readSchema: (major: number) => Promise<Script>,
): Promise<Source> {
  const server = await readServer(client);
  const major = Math.floor(server.version / 10_000);
  if (major < OLDEST)
    throw new Failure(
      `the source runs PostgreSQL ${major}; sources need ${OLDEST} or newer: import a dump of it`,
      'usage',
    );
  const timescale = await readTimescale(client);
  const tables = await readTables(client, timescale?.hypertables ?? []);
  const problems = [
    ...problemsOf(tables, await readClosedSequences(client), timescale),
    ...(follow ? problemsOfFollowing(server, tables).map(asProblem) : []),
  ];
  // pg_dump ends at the first table that it may not read.
  const isDumped = tables.every(({ isReadable }) => isReadable);
  const found = isDumped ? await examine(await readSchema(major)) : null;
  const notes = [
    ...(found === null ? [] : leftOutLines(found, NOT_IMPORTED)),
    ...jobsOf(timescale),
  ];
  const [extensions, named] = [await readExtensions(client), await readRoles(client)];
  const roles = named.filter((name) => !isReservedRole(name));
  notes.push(...reservedNote(named.filter((name) => isReservedRole(name))));
  const schemas = await readSchemas(client);
  const all = [...problems, ...(found?.obstacles ?? []).map((one) => ({ ...one, line: 0 }))];
  return { server, major, extensions, roles, schemas, tables, timescale, problems: all, notes };
}

/** Statements that an import of a live database leaves out, and does not replace. */
const NOT_IMPORTED = ['eventTrigger', 'foreign', 'owner'] as const;

const asProblem = (text: string): InTheWay => {
  const [what = '', ...remedy] = text.split(': ');
  return { line: 0, what, remedy: remedy.join(': ') };
};

function problemsOf(
  tables: readonly Table[],
  closed: readonly string[],
  timescale: Timescale | null,
): InTheWay[] {
  const unreadable = tables.filter(({ isReadable }) => !isReadable).map(shownOf);
  const filtered = tables.filter(({ isReadable, isFiltered }) => isReadable && isFiltered);
  const { aggregates, compressed } = timescale?.refused ?? { aggregates: [], compressed: [] };
  return [
    ...refusal(
      unreadable,
      'tables that the user of the URL may not read (the rest was not looked at)',
      'grant select on them, and usage on their schemas',
    ),
    ...refusal(closed, 'sequences that the user of the URL may not read', 'grant select on them'),
    ...refusal(
      filtered.map(shownOf),
      'tables of which policies hide rows from the user of the URL',
      'name their owner or a superuser, or alter role … bypassrls',
    ),
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

function refusal(names: readonly string[], what: string, remedy: string): InTheWay[] {
  return names.length === 0 ? [] : [{ line: 0, what: `${what}: ${listed(names)}`, remedy }];
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

function jobsOf(timescale: Timescale | null): string[] {
  const jobs = timescale?.jobs ?? [];
  return jobs.length === 0 ? [] : [`jobs of TimescaleDB: ${listed(jobs)}`];
}

/**
 * Checks the database of the service before anything is copied into it.
 *
 * @param limitGb the storage quota of the service; null: it has none
 * @throws Failure
 */
export async function examineTarget(
  client: ClientBase,
  source: Pick<Source, 'major' | 'server'>,
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
  const { bytes } = source.server;
  if (limitGb !== null && bytes > limitGb * 1e9)
    throw new Failure(
      `the source has ${sizeOf(bytes)}, the storage quota of the service is ${limitGb} GB: ` +
        `howdah service resize … --storage-gb ${Math.ceil((bytes * 1.3) / 1e9)}`,
      'limit',
    );
}
