/** Archives of pg_dump: their entries, and their restoring into a service as tsdbadmin. */
import { writeFile } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { variablesOf, type Endpoint } from './endpoint.ts';
import { ProgramFailure, runProgram } from './programs.ts';

/** A line of the list that `pg_restore --list` prints. */
export type Entry = {
  /** The ids of the catalog and of the object in the source. */
  classOid: string;
  oid: string;
  /** `TABLE public orders app`: the kind of object comes first. */
  what: string;
  line: string;
};

/** The entries of an archive, in its order. @throws Failure */
export async function listEntries(program: string, archive: string): Promise<Entry[]> {
  const { stream, text } = collect();
  await runProgram(program, ['--list', archive], { output: stream });
  return text()
    .split('\n')
    .flatMap((line): Entry[] => {
      const [, classOid = '', oid = '', what = ''] = /^\d+; (\d+) (\d+) (.*)$/.exec(line) ?? [];
      return what === '' ? [] : [{ classOid, oid, what, line }];
    });
}

/** The version of pg_dump that wrote an archive. */
export async function versionOfArchive(program: string, archive: string): Promise<number> {
  const { stream, text } = collect();
  await runProgram(program, ['--list', archive], { output: stream });
  return Number(/Dumped by pg_dump version: (\d+)/.exec(text())?.[1] ?? 0);
}

const beginsWith =
  (...kinds: readonly string[]) =>
  ({ what }: Entry): boolean =>
    kinds.some((kind) => what.startsWith(`${kind} `));

/** TimescaleDB's own rows, which its extension protects. Without hypertables they mean nothing. */
export const isTimescaleData = ({ what }: Entry): boolean =>
  /^(TABLE DATA|SEQUENCE SET) _timescaledb_/.test(what);
/** Objects that act on rows or check other tables: they come after the last followed change. */
const LATE = [
  'CHECK CONSTRAINT',
  'FK CONSTRAINT',
  'STATISTICS',
  'TRIGGER',
  'RULE',
  'POLICY',
  'ROW SECURITY',
  'COMMENT',
] as const;
export const isLate = beginsWith(...LATE);
/** The kinds that come after the rows: pg_restore's section post-data, and comments on all. */
export const isAfterRows = beginsWith('INDEX', 'CONSTRAINT', ...LATE);
/** Extensions are created by the transfer itself: the service has some of them already. */
export const isExtension = beginsWith('EXTENSION', 'COMMENT - EXTENSION');
/** Only a superuser may create an event trigger. */
export const isEventTrigger = beginsWith('EVENT TRIGGER', 'COMMENT - EVENT TRIGGER');
export const isSchema = beginsWith('SCHEMA');
export const isPrivilege = beginsWith('ACL', 'DEFAULT ACL');
/** Connections to other servers, some with passwords; a service connects to nobody. */
export const isForeign = beginsWith('SERVER', 'USER MAPPING', 'FOREIGN DATA WRAPPER');
export const isReplication = beginsWith('PUBLICATION', 'SUBSCRIPTION');

/** How entries are restored. */
export type Restoring = {
  program: string;
  archive: string;
  target: Endpoint;
  application: string;
  /** Where the list of the entries is written. */
  list: string;
  args: readonly string[];
};

/** Restores some entries of an archive. @throws Failure with the first error */
export async function restore(
  entries: readonly Entry[],
  { program, archive, target, application, list, args }: Restoring,
): Promise<void> {
  if (entries.length === 0) return;
  await writeFile(list, entries.map(({ line }) => `${line}\n`).join(''), { mode: 0o600 });
  await runProgram(
    program,
    [
      `--dbname=${target.database}`,
      `--use-list=${list}`,
      '--no-owner',
      '--no-tablespaces',
      '--exit-on-error',
      ...args,
      archive,
    ],
    { variables: variablesOf(target, application) },
  );
}

/** The SQL of some entries, for a transaction of ours. @throws Failure */
export async function scriptOf(
  entries: readonly Entry[],
  { program, archive, list }: Pick<Restoring, 'program' | 'archive' | 'list'>,
): Promise<string> {
  if (entries.length === 0) return '';
  await writeFile(list, entries.map(({ line }) => `${line}\n`).join(''), { mode: 0o600 });
  const { stream, text } = collect();
  const args = [`--use-list=${list}`, '--no-owner', '--no-tablespaces', '--file=-', archive];
  await runProgram(program, args, { output: stream });
  // psql's own commands, of which these two are the only ones in a script without data.
  return text().replaceAll(/^\\(un)?restrict [A-Za-z0-9]+$/gm, '');
}

/**
 * Restores privileges, each on its own: a role of the source may be missing here.
 *
 * @returns the number of errors
 */
export async function restorePrivileges(
  entries: readonly Entry[],
  restoring: Restoring,
): Promise<number> {
  if (entries.length === 0) return 0;
  const { program, archive, target, application, list, args } = restoring;
  await writeFile(list, entries.map(({ line }) => `${line}\n`).join(''), { mode: 0o600 });
  try {
    await runProgram(
      program,
      [`--dbname=${target.database}`, `--use-list=${list}`, '--no-owner', ...args, archive],
      { variables: variablesOf(target, application) },
    );
    return 0;
  } catch (error) {
    const said = error instanceof ProgramFailure ? error.lastWords : '';
    const [, count] = /errors ignored on restore: (\d+)/.exec(said) ?? [];
    if (count === undefined) throw error;
    return Number(count);
  }
}

// The output of a program as text.

/** A stream that keeps what is written to it. */
function collect(): { stream: Writable; text: () => string } {
  const parts: Buffer[] = [];
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      parts.push(chunk);
      done();
    },
  });
  return { stream, text: () => Buffer.concat(parts).toString('utf8') };
}
