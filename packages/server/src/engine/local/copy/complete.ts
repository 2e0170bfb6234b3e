/** Makes the files of a base backup the data of a standby. They are of another machine: input. */
import { join } from 'node:path';
import { renameDurably } from '../../../lib/durable.ts';
import { run } from '../../../lib/run.ts';
import { writeOwned } from '../backup/take.ts';
import { privileges } from '../host/detached.ts';
import { flushFileSystem } from '../host/flush.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Owner } from '../host/owner.ts';
import { listEntries, readText, removeEntry, statEntry } from '../host/service-files.ts';
import { forgetBackup, unfinishedOf } from './base-backup.ts';

/**
 * Files of the other region's server that a server of ours does not read: its own configuration is
 * outside of the data. Without them, nobody is misled.
 */
const OF_THE_SOURCE = [
  'postgresql.conf',
  'custom.conf',
  'override.conf',
  'pg_hba.conf',
  'pg_ident.conf',
  'recovery.signal',
  'backup_label.old',
];

/** Even a million files take less. */
const CLOSED_WITHIN_MS = 600_000;

/**
 * @param major the version of the PostgreSQL that it gets
 * @throws Error when it is not the data of such a server, or lies in several places
 */
export async function completeData(
  paths: InstancePaths,
  owner: Owner | null,
  major: number,
): Promise<void> {
  const data = unfinishedOf(paths);
  const version = readText(join(data, 'PG_VERSION'))?.trim() ?? 'no';
  if (version !== String(major))
    throw new Error(
      `its data is of ${version} version of PostgreSQL, and PostgreSQL ${major} runs it`,
    );
  if (statEntry(join(data, 'pg_wal'))?.isDirectory() !== true)
    throw new Error('its WAL is not in its data directory');
  if ((await listEntries(join(data, 'pg_tblspc'))).length > 0)
    throw new Error('it has tablespaces, which are outside of its data directory; drop them first');
  await closeToOthers(data, owner);
  for (const name of OF_THE_SOURCE) await removeEntry(join(data, name));
  // Settings of the source would take precedence over ours.
  await writeOwned(owner, join(data, 'postgresql.auto.conf'), '');
  await writeOwned(owner, join(data, 'standby.signal'), '');
  await flushFileSystem(paths.root);
  await renameDurably(data, paths.data);
  await forgetBackup(paths);
}

/** The other region may have let others read files. The user of the copy owns all of them. */
async function closeToOthers(data: string, owner: Owner | null): Promise<void> {
  const open = [data, '-xdev', '!', '-type', 'l', '-perm', '/077'];
  const close = ['-execdir', 'chmod', 'go-rwx,-s', '{}', '+'];
  const [program = '', ...words] = [...privileges(owner), 'find', ...open, ...close];
  await run(program, words, {
    env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin' },
    deadlineMs: CLOSED_WITHIN_MS,
  });
}
