/** Dump files: their import into a service, and their export from one. */
import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, open as openFile, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import {
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
import { findNewest, findProgram, runProgram } from './programs.ts';
import { step, sizeOf } from './steps.ts';

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

/**
 * Restores a dump into an empty service. With one job it is one transaction: an import that is
 * interrupted leaves nothing.
 *
 * @throws Failure
 */
export async function importDump(dump: Dump, target: Endpoint, jobs: number): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'howdah-import-'));
  try {
    if (dump.kind === 'archive')
      await importArchive(dump, target, jobs, join(directory, 'entries'));
    else
      await step('run the SQL', async (report) => {
        report(sizeOf(dump.bytes));
        await importSql(dump.path, target);
      });
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
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function importArchive(
  { path, bytes }: Dump,
  target: Endpoint,
  jobs: number,
  list: string,
): Promise<void> {
  // An older pg_restore does not know the format; a newer one reads all archives.
  const major = await versionOfArchive(await findNewest('pg_restore'), path);
  const program = await findProgram('pg_restore', major);
  const entries = (await listEntries(program, path)).filter(
    (entry) =>
      !isEventTrigger(entry) &&
      !isForeign(entry) &&
      !isReplication(entry) &&
      !isTimescaleData(entry),
  );
  const hypertables = entries.filter(({ what }) => what.startsWith('TABLE _timescaledb_internal '));
  if (hypertables.length > 0)
    throw new Failure(
      'the archive has hypertables, which a dump restores only with rights that no tenant ' +
        'has: import from the live database, postgres://…',
      'usage',
    );
  const restoring = { program, archive: path, target, application: APPLICATION, list };
  const args = jobs > 1 ? [`--jobs=${jobs}`] : ['--single-transaction'];
  const known = await extensionsOf(target);
  const isThere = ({ what }: { what: string }): boolean =>
    known.some(
      (name) =>
        what.startsWith(`EXTENSION - ${name} `) || what.startsWith(`COMMENT - EXTENSION ${name} `),
    );
  await step('restore the archive', async (report) => {
    report(
      bytes === 0 ? `${entries.length} entries` : `${entries.length} entries, ${sizeOf(bytes)}`,
    );
    const chosen = entries.filter(
      (entry) =>
        !isPrivilege(entry) &&
        !(isExtension(entry) && (isThere(entry) || entry.what.startsWith('COMMENT'))),
    );
    await restore(chosen, { ...restoring, args });
  });
  const errors = await step('restore privileges', () =>
    restorePrivileges(entries.filter(isPrivilege), { ...restoring, args: [] }),
  );
  if (errors > 0)
    note(
      `${paintNote.yellow('warning')} ${errors} privileges could not be granted: a dump has ` +
        'no roles. Create them, and grant again',
    );
}

async function extensionsOf(target: Endpoint): Promise<string[]> {
  const client = await open(target, APPLICATION);
  try {
    const { rows } = await client.query<{ name: string }>(
      'select extname as name from pg_catalog.pg_extension',
    );
    return rows.map(({ name }) => name);
  } finally {
    await client.end();
  }
}

/**
 * Runs a script in one transaction. psql runs it in its restricted mode, in which the script cannot
 * leave SQL: commands of psql run programs and write files on this machine.
 */
async function importSql(path: string, target: Endpoint): Promise<void> {
  const psql = await findNewest('psql');
  const args = ['--no-psqlrc', '--quiet', '--set=ON_ERROR_STOP=1', '--file=-'];
  await runProgram(psql, args, {
    variables: variablesOf(target, APPLICATION),
    input: Readable.from(restricted(path)),
  });
}

/** The lines that pg_dump itself writes to restrict psql; the restriction around them is ours. */
const OWN = /^\\restrict ([A-Za-z0-9]+)\r?$/;
/** pg_dump writes its line before the first statement. */
const HEADER_BYTES = 4000;

/**
 * The script between the two commands that begin and end the restricted mode. The transaction is
 * ours: psql's own would be committed when this process is killed and the input ends.
 */
async function* restricted(path: string): AsyncGenerator<Buffer | string> {
  const key = randomBytes(24).toString('hex');
  yield `\\restrict ${key}\nbegin;\n`;
  const file = await openFile(path);
  const begin = Buffer.alloc(HEADER_BYTES);
  const { bytesRead } = await file.read(begin, 0, begin.length, 0);
  await file.close();
  const header = begin.toString('latin1', 0, bytesRead);
  const line = header.split('\n').find((one) => OWN.test(one));
  if (line === undefined) yield* createReadStream(path);
  else yield* withoutLines(path, [line, line.replace('restrict', 'unrestrict')]);
  yield `\ncommit;\n\\unrestrict ${key}\n`;
}

/** A file without two lines of it, each of which is there at most once. */
async function* withoutLines(path: string, lines: readonly string[]): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0);
  for await (const chunk of createReadStream(path)) {
    const data = Buffer.concat([rest, chunk]);
    const end = data.lastIndexOf('\n');
    rest = data.subarray(end + 1);
    yield without(data.subarray(0, end + 1), lines);
  }
  yield without(rest, lines);
}

function without(data: Buffer, lines: readonly string[]): Buffer {
  let left = data;
  for (const line of lines) {
    const at = left.indexOf(`${line}\n`);
    const isWhole = at === 0 || (at > 0 && left[at - 1] === 0x0a);
    if (isWhole) left = Buffer.concat([left.subarray(0, at), left.subarray(at + line.length + 1)]);
  }
  return left;
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
