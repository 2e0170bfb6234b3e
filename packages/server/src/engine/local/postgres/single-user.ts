/**
 * PostgreSQL in single-user mode, on data that no server runs on: nobody else can have a session,
 * and no setting or trigger of a database or role holds there.
 */
import { dirname, join } from 'node:path';
import type { Size } from '@howdah/contract';
import { runEnclosed } from '../host/enclosed-program.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Owner } from '../host/users.ts';
import { sharedMemoryBytes } from '../host/sandbox.ts';
import { removeEntry } from '../../../lib/untrusted-files.ts';
import type { Installation } from './installations.ts';
import { fence } from './server.ts';

/** Nothing of a tenant or of an extension runs. */
const SETTINGS = [
  'exit_on_error=on',
  'allow_system_table_mods=on',
  'logging_collector=off',
  'log_destination=stderr',
  'shared_preload_libraries=',
  'session_preload_libraries=',
  'local_preload_libraries=',
  'search_path=pg_catalog',
  'default_transaction_read_only=off',
];

/** The data that it runs on, whose configuration is written. */
export type SingleUser = Readonly<{
  paths: InstancePaths;
  owner: Owner | null;
  installation: Installation;
  size: Size;
  /** How long it may take, with a recovery from a crash. */
  deadlineMs: number;
}>;

/**
 * Ends what a killed control plane may have left on the data. The caller knows that no server runs.
 */
export async function clearForSingleUser(paths: InstancePaths): Promise<void> {
  if (!(await fence(paths))) throw new Error('PostgreSQL in single-user mode does not end');
  await removeEntry(join(paths.data, 'postmaster.pid'));
}

/** PostgreSQL in single-user mode reads a statement from each line. */
export const inOneLine = (sql: string): string => sql.replaceAll(/\s*\n\s*/g, ' ');

/**
 * Runs statements, and ends with a checkpoint.
 *
 * @returns what it prints
 * @throws Error with the reason of PostgreSQL
 */
export function runSingleUser(
  machine: Machine,
  { paths, owner, installation, size, deadlineMs }: SingleUser,
  database: string,
  statements: readonly string[],
): Promise<string> {
  const program = join(installation.bin, 'postgres');
  const settings = [`config_file=${join(paths.config, 'postgresql.conf')}`, ...SETTINGS];
  return runEnclosed(
    {
      machine,
      owner,
      // The members of a service have one marker, in the directory that all of them are below.
      view: { program, own: dirname(paths.marker), others: [], config: paths.config },
      deadlineMs,
      input: statements.map((sql) => `${inOneLine(sql)}\n`).join(''),
      sharedMemoryBytes: sharedMemoryBytes(size),
    },
    'PostgreSQL in single-user mode',
    [
      program,
      '--single',
      '-D',
      paths.data,
      ...settings.flatMap((setting) => ['-c', setting]),
      database,
    ],
  );
}
