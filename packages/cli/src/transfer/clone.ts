/** The import of a live database, until the service has all rows of one snapshot. */
import { escapeIdentifier, escapeLiteral, type Client } from 'pg';
import {
  isAfterRows,
  isEventTrigger,
  isExtension,
  isForeign,
  isPrivilege,
  isReplication,
  isSchema,
  listEntries,
  restore,
  type Entry,
  type Restoring,
} from './archive.ts';
import { readPartsOf, sqlOf, type Extension, type Hypertable } from './catalog.ts';
import type { Source } from './checks.ts';
import { copyLargeObjects, copyTables, enterSnapshot } from './copy.ts';
import { open, variablesOf } from './endpoint.ts';
import { Failure } from '../exit.ts';
import { findProgram, runProgram } from './programs.ts';
import {
  beginFollowing,
  createSlot,
  dropFollowing,
  markUnfinished,
  type HeldSnapshot,
  type Sessions,
} from './slot.ts';
import { applicationOf, archiveOf, listOf, saveState, type State } from './state.ts';
import { shortMessageOf, only, step, sizeOf } from './steps.ts';

/** The service cannot have the schema of the source; no row was copied. */
export class SchemaRefused extends Failure {}

/** Options of pg_dump for the schema of a source. */
export const SCHEMA_OPTIONS = [
  '--schema-only',
  '--no-tablespaces',
  '--no-security-labels',
  '--no-publications',
  '--no-subscriptions',
  '--exclude-schema=_timescaledb_*',
] as const;

/**
 * Copies the schema and all rows, from the beginning: nothing of an earlier attempt remains.
 *
 * @throws Failure
 */
export async function copyAll(state: State, source: Source, sessions: Sessions): Promise<State> {
  const application = applicationOf(state);
  const dump = await findProgram('pg_dump', source.major);
  const program = await findProgram('pg_restore', source.major);
  const hypertables = source.timescale?.hypertables ?? [];
  if (state.follow) await dropFollowing(state, sessions);
  await markUnfinished(sessions.target);
  if (state.follow)
    await step('create publication', () => beginFollowing(state, source.tables, sessions.source));
  const held = state.follow ? await createSlot(state, sessions.target) : await holdSnapshot(state);
  try {
    const parts = await readPartsOf(sessions.source, hypertables);
    const [keys, skipped] = [[...parts.keys], [...parts.skipped]];
    let now: State = { ...state, begun: true, hypertables, keys, skipped };
    await step('dump the schema', async (report) => {
      await runProgram(
        dump,
        [
          ...SCHEMA_OPTIONS,
          '--format=custom',
          `--snapshot=${held.snapshot}`,
          `--file=${archiveOf(now)}`,
        ],
        { variables: variablesOf(now.source, application) },
      );
      report(`by ${dump}`);
    });
    const restoring = restoringOf(now, program);
    const entries = await entriesOf(now, program);
    await saveState(now);
    await step('restore the schema', () =>
      restoreSchema(now, entries, restoring, source, sessions.target, state.begun).catch(
        (error: unknown) => {
          throw new SchemaRefused(shortMessageOf(error));
        },
      ),
    );
    const openSource = async (): Promise<Client> => {
      const client = await open(now.source, application);
      await enterSnapshot(client, held.snapshot);
      return client;
    };
    const copied = await step('copy rows', (report) =>
      copyTables(source.tables, openSource, () => open(now.target, application), {
        jobs: now.jobs,
        report,
      }),
    );
    if (source.server.largeObjects > 0)
      await step('copy large objects', async (report) => {
        const inSnapshot = await openSource();
        try {
          await copyLargeObjects(inSnapshot, sessions.target, report);
        } finally {
          await inSnapshot.end();
        }
      });
    now = { ...now, copied, stage: 'finish' };
    await saveState(now);
    return now;
  } finally {
    await held.release();
  }
}

async function holdSnapshot(state: State): Promise<HeldSnapshot> {
  const client = await open(state.source, applicationOf(state));
  await client.query('begin isolation level repeatable read read only');
  const { rows } = await client.query<{ snapshot: string }>(
    'select pg_catalog.pg_export_snapshot() as snapshot',
  );
  return { snapshot: only(rows, 'the snapshot').snapshot, release: () => client.end() };
}

export function restoringOf(state: State, program: string): Restoring {
  return {
    program,
    archive: archiveOf(state),
    target: state.target,
    application: applicationOf(state),
    list: listOf(state),
    args: [],
  };
}

/** The object that an entry makes, by its catalog and id in the source. */
export const idOf = ({ classOid, oid }: Entry): string => `${classOid} ${oid}`;

/** The entries of the archive that a service can have. */
export async function entriesOf(state: State, program: string): Promise<Entry[]> {
  const dropped = new Set(state.skipped);
  const entries = await listEntries(program, archiveOf(state));
  return entries.filter(
    (entry) =>
      !isExtension(entry) &&
      !isEventTrigger(entry) &&
      !isForeign(entry) &&
      !isReplication(entry) &&
      !dropped.has(idOf(entry)),
  );
}

async function restoreSchema(
  state: State,
  entries: readonly Entry[],
  restoring: Restoring,
  { extensions, roles, schemas }: Source,
  target: Client,
  isRepeated: boolean,
): Promise<void> {
  const clean = isRepeated ? ['--clean', '--if-exists'] : [];
  const keys = new Set(state.keys);
  const isEarly = (entry: Entry): boolean => keys.has(idOf(entry));
  const before = entries.filter(
    (entry) => !isPrivilege(entry) && (!isAfterRows(entry) || isEarly(entry)),
  );
  await createRoles(target, roles);
  // The schemas first: extensions may be in them, and types of extensions in tables.
  for (const name of schemas)
    await target.query(`create schema if not exists ${escapeIdentifier(name)}`);
  await createExtensions(target, extensions);
  const rest = before.filter((entry) => !isSchema(entry));
  await restore(rest, { ...restoring, args: clean });
  for (const table of state.hypertables) await createHypertable(target, table);
}

/** The roles of the source, without a password and without the right to log in. */
async function createRoles(target: Client, roles: readonly string[]): Promise<void> {
  const { rows } = await target.query<{ name: string }>(
    'select rolname as name from pg_catalog.pg_roles',
  );
  const known = new Set(rows.map(({ name }) => name));
  for (const role of roles.filter((one) => !known.has(one)))
    await target.query(`create role ${escapeIdentifier(role)} nologin`);
}

async function createExtensions(target: Client, extensions: readonly Extension[]): Promise<void> {
  const { rows } = await target.query<{ name: string }>(
    'select extname as name from pg_catalog.pg_extension',
  );
  const known = new Set(rows.map(({ name }) => name));
  for (const { name, schema } of extensions.filter((one) => !known.has(one.name))) {
    const own = schema === name || schema === 'pg_catalog';
    const place = own ? '' : ` schema ${escapeIdentifier(schema)}`;
    try {
      await target.query(`create extension ${escapeIdentifier(name)}${place}`);
    } catch (error) {
      throw new Failure(
        `the extension ${name} of the source cannot be created in the service: ` +
          shortMessageOf(error),
      );
    }
  }
}

/** Makes a table the hypertable that it is in the source. Its keys are there, its rows are not. */
async function createHypertable(target: Client, table: Hypertable): Promise<void> {
  const name = `${escapeLiteral(sqlOf(table))}::regclass`;
  const schema = await extensionSchema(target);
  for (const [index, dimension] of table.dimensions.entries()) {
    const column = `${escapeLiteral(dimension.column)}::name`;
    const interval =
      dimension.timeInterval === null
        ? `${escapeLiteral(dimension.integerInterval ?? '0')}::bigint`
        : `${escapeLiteral(dimension.timeInterval)}::interval`;
    const call = dimension.isTime
      ? index === 0
        ? `create_hypertable(${name}, ${column}, chunk_time_interval => ${interval}, ` +
          'create_default_indexes => false)'
        : `add_dimension(${name}, ${column}, chunk_time_interval => ${interval})`
      : `add_dimension(${name}, ${column}, number_partitions => ${dimension.partitions ?? 1})`;
    await target.query(`select ${schema}.${call}`);
  }
}

async function extensionSchema(target: Client): Promise<string> {
  const { rows } = await target.query<{ schema: string }>(
    `select n.nspname as schema from pg_catalog.pg_extension e
     join pg_catalog.pg_namespace n on n.oid = e.extnamespace where e.extname = 'timescaledb'`,
  );
  return escapeIdentifier(only(rows, 'the extension timescaledb').schema);
}

/** The rows and bytes that were copied, for people. */
export function summaryOf({ copied }: State, bytes: number): string {
  const rows = copied.reduce((sum, { contents }) => sum + BigInt(contents.rows), 0n);
  return `${copied.length} tables, ${rows} rows, ${sizeOf(bytes)} in the source`;
}
