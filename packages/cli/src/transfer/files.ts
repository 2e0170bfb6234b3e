/** Dump files: their import into a service, and their export from one. */
import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, open as openFile, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import {
  type Entry,
  isEventTrigger,
  isExtension,
  isForeign,
  isPrivilege,
  isReplication,
  isTimescaleData,
  listEntries,
  restore,
  restorePrivileges,
  versionOfArchive,
} from './archive.ts';
import { readRelations } from './catalog.ts';
import { open, variablesOf, type Endpoint } from './endpoint.ts';
import { Failure } from '../exit.ts';
import { note, paintNote } from '../output.ts';
import { findNewest, findProgram, outputOf, runProgram } from './programs.ts';
import { examine, write, type Findings, type Script } from './script/examine.ts';
import { makingRole, reporting } from './script/rules.ts';
import { step, sizeOf, listed } from './steps.ts';

const APPLICATION = 'howdah import';

/** A dump: an archive of pg_dump (custom, tar or directory), or SQL. */
export type Dump = { path: string; kind: 'archive' | 'sql'; bytes: number };

/** @throws Failure usage */
export async function examineDump(path: string): Promise<Dump> {
  const found = await stat(path).catch(() => null);
  if (found === null)
    throw new Failure(
      `${path}: there is no such file; a database is named by its URL, ` +
        'postgres://USER@HOST:PORT/DATABASE',
      'usage',
    );
  if (found.isDirectory()) {
    const hasContents = await stat(join(path, 'toc.dat')).catch(() => null);
    if (hasContents === null)
      throw new Failure(`${path} is no archive of pg_dump: it has no toc.dat`, 'usage');
    return { path, kind: 'archive', bytes: 0 };
  }
  const file = await openFile(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(512), 0, 512, 0);
    const begin = buffer.subarray(0, bytesRead);
    const isCustom = begin.toString('latin1', 0, 5) === 'PGDMP';
    const isTar =
      begin.toString('latin1', 257, 262) === 'ustar' &&
      begin.toString('latin1', 0, 7) === 'toc.dat';
    if (!isCustom && !isTar && begin.includes(0))
      throw new Failure(`${path} is neither an archive of pg_dump nor SQL`, 'usage');
    return { path, kind: isCustom || isTar ? 'archive' : 'sql', bytes: found.size };
  } finally {
    await file.close();
  }
}

/** The script of a dump, without its rows. @throws Failure when a program is missing */
async function schemaOf(dump: Dump): Promise<Script> {
  // The rows come in the import, by the same programs.
  await findNewest('psql');
  if (dump.kind === 'sql') return createReadStream(dump.path);
  const { program } = await programFor(dump);
  return outputOf(program, ['--schema-only', ...SCRIPT_OPTIONS, dump.path]);
}

/** Schemas whose rows belong to the extension timescaledb, which protects them. */
const TIMESCALE_SCHEMAS = ['_timescaledb_catalog', '_timescaledb_config', '_timescaledb_internal'];
const SCRIPT_OPTIONS = [
  '--file=-',
  '--no-owner',
  '--no-tablespaces',
  ...TIMESCALE_SCHEMAS.map((schema) => `--exclude-schema=${schema}`),
];

/** An older pg_restore does not know the format; a newer one reads all archives. */
async function programFor({ path }: Dump): Promise<{ program: string; hasHypertables: boolean }> {
  const major = await versionOfArchive(await findNewest('pg_restore'), path);
  const program = await findProgram('pg_restore', major);
  const entries = await listEntries(program, path);
  const hasHypertables = entries.some(({ what }) =>
    what.startsWith('TABLE _timescaledb_internal '),
  );
  return { program, hasHypertables };
}

/** Reads all of a dump that can be in the way of its import. @throws Failure */
export async function examineContents(dump: Dump): Promise<Findings> {
  const findings = await examine(await schemaOf(dump));
  if (dump.kind === 'archive' && (await programFor(dump)).hasHypertables)
    findings.obstacles.push({
      line: 0,
      what: 'hypertables, which a dump restores only with rights that no tenant has',
      remedy: 'import from the live database, postgres://…',
    });
  return findings;
}

/**
 * Restores a dump into an empty service. With one job it is one transaction: an import that is
 * interrupted leaves nothing.
 *
 * @throws Failure
 */
export async function importDump(
  dump: Dump,
  target: Endpoint,
  jobs: number,
  findings: Findings,
): Promise<void> {
  const there = await readThere(target);
  const roles = [...findings.roles].filter((name) => !there.roles.has(name));
  const left =
    dump.kind === 'archive' && jobs > 1
      ? await restoreInParallel(dump, target, jobs, { ...there, missing: roles })
      : await step(dump.kind === 'sql' ? 'run the SQL' : 'restore the archive', async (report) => {
          if (dump.bytes > 0) report(sizeOf(dump.bytes));
          const tag = `howdah_${randomBytes(8).toString('hex')}`;
          return runScript(
            write(await scriptOf(dump), { roles, has: there.extensions, tag }),
            target,
            tag,
          );
        });
  if (left !== '')
    note(`${paintNote.yellow('warning')} privileges that could not be granted: ${left}`);
  noteRoles(roles);
  const client = await open(target, APPLICATION);
  try {
    await step('analyze', async () => void (await client.query('analyze')));
    const names = await readRelations(client);
    note(
      `${paintNote.green('✓')} restored: ` +
        `${names.length < 100 ? names.length : 'more than 100'} tables, views and sequences`,
    );
  } finally {
    await client.end();
  }
}

async function scriptOf(dump: Dump): Promise<Script> {
  if (dump.kind === 'sql') return createReadStream(dump.path);
  return outputOf((await programFor(dump)).program, [...SCRIPT_OPTIONS, dump.path]);
}

/** Several sessions restore an archive, in no transaction. */
async function restoreInParallel(
  { path, bytes }: Dump,
  target: Endpoint,
  jobs: number,
  there: { extensions: ReadonlySet<string>; missing: readonly string[] },
): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'howdah-import-'));
  try {
    const { program } = await programFor({ path, bytes, kind: 'archive' });
    const restoring = {
      program,
      archive: path,
      target,
      application: APPLICATION,
      list: join(directory, 'entries'),
    };
    const isThere = ({ what }: Entry): boolean =>
      [...there.extensions].some((name) => what.startsWith(`EXTENSION - ${name} `));
    const entries = (await listEntries(program, path)).filter(
      (entry) =>
        !isEventTrigger(entry) &&
        !isForeign(entry) &&
        !isReplication(entry) &&
        !isTimescaleData(entry) &&
        !(isExtension(entry) && (isThere(entry) || entry.what.startsWith('COMMENT'))),
    );
    await makeRoles(target, there.missing);
    await step('restore the archive', async (report) => {
      report(`${entries.length} entries`);
      const chosen = entries.filter((entry) => !isPrivilege(entry));
      await restore(chosen, { ...restoring, args: [`--jobs=${jobs}`] });
    });
    const errors = await step('restore privileges', () =>
      restorePrivileges(entries.filter(isPrivilege), { ...restoring, args: [] }),
    );
    return errors === 0 ? '' : String(errors);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function makeRoles(target: Endpoint, roles: readonly string[]): Promise<void> {
  const client = await open(target, APPLICATION);
  try {
    for (const name of roles) await client.query(makingRole(name));
  } finally {
    await client.end();
  }
}

/** The extensions and roles that a service has. */
async function readThere(
  target: Endpoint,
): Promise<{ extensions: ReadonlySet<string>; roles: ReadonlySet<string> }> {
  const client = await open(target, APPLICATION);
  try {
    const read = async (text: string): Promise<ReadonlySet<string>> =>
      new Set((await client.query<{ name: string }>(text)).rows.map(({ name }) => name));
    return {
      extensions: await read('select extname as name from pg_catalog.pg_extension'),
      roles: await read('select rolname as name from pg_catalog.pg_roles'),
    };
  } finally {
    await client.end();
  }
}

/**
 * Runs a script in one transaction. psql runs it in its restricted mode, in which the script cannot
 * leave SQL: commands of psql run programs and write files on this machine. The transaction is
 * ours: psql's own would be committed when this process is killed and the input ends.
 *
 * @returns privileges that could not be granted, for people
 */
async function runScript(script: Script, target: Endpoint, tag: string): Promise<string> {
  const key = randomBytes(24).toString('hex');
  const lines = async function* (): AsyncGenerator<Buffer | string> {
    yield `\\restrict ${key}\nbegin;\n`;
    yield* script;
    yield `\n${reporting(tag)}commit;\n\\unrestrict ${key}\n`;
  };
  const psql = await findNewest('psql');
  const args = ['--no-psqlrc', '--quiet', '--set=ON_ERROR_STOP=1', '--file=-'];
  const said = await runProgram(psql, args, {
    variables: variablesOf(target, APPLICATION),
    input: Readable.from(lines()),
  });
  return new RegExp(`WARNING: +${tag} (.*)`).exec(said)?.[1] ?? '';
}

export const EXPORT_FORMATS = ['custom', 'plain', 'tar', 'directory'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];

/**
 * Dumps a service.
 *
 * @param file null: to standard output
 * @throws Failure
 */
export async function exportService(
  source: Endpoint,
  format: ExportFormat,
  file: string | null,
): Promise<void> {
  const client = await open(source, 'howdah export');
  let major: number;
  try {
    const { rows } = await client.query<{ version: number }>(
      "select current_setting('server_version_num')::int as version",
    );
    major = Math.floor((rows[0]?.version ?? 0) / 10_000);
  } finally {
    await client.end();
  }
  const program = await findProgram('pg_dump', major);
  const variables = variablesOf(source, 'howdah export');
  if (file === null) {
    await runProgram(program, [`--format=${format}`], { variables, output: process.stdout });
    return;
  }
  if ((await stat(file).catch(() => null)) !== null)
    throw new Failure(`${file} exists already: name another file`, 'conflict');
  // Under another name until it is whole, so that an export that is interrupted is not used.
  const incomplete = `${file}.incomplete`;
  await step('dump', async (report) => {
    await rm(incomplete, { recursive: true, force: true });
    process.umask(0o077);
    await runProgram(program, [`--format=${format}`, `--file=${incomplete}`], { variables });
    await rename(incomplete, file);
    const { size } = await stat(file);
    report(format === 'directory' ? file : `${file}, ${sizeOf(size)}`);
  });
}

// Says which roles of an import need a password or a right from the user.

const SHOWN = 10;

/**
 * Lists the roles that were made without a password. The source's is not copied: it may be an md5
 * hash, with which no role can log in to a service.
 */
export function noteRoles(roles: readonly string[]): void {
  if (roles.length === 0) return;
  note(
    `${paintNote.yellow('note')} ${roles.length} roles were made without password and login, ` +
      `also those whose password was an md5 hash: ${listed(roles)}. For each that logs in:`,
  );
  for (const role of roles.slice(0, SHOWN))
    note(`  alter role ${quotedRole(role)} login password '…';`);
}

const quotedRole = (name: string): string =>
  /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
