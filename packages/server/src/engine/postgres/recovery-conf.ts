/** The settings of the recovery of a fork, a restored backup or a copy ([PG] 26.3). */
import { relative } from 'node:path';
import { quoted } from '../../domain/postgres/settings.ts';
import type { ServerFiles } from './server-files.ts';

/**
 * Rolls forward from the parent's archive, then from the WAL it has not archived yet. A file that
 * was archived while it was copied may have been written over meanwhile: then, and when it is gone,
 * the archive is asked once more.
 *
 * @param data the data directory that rolls forward; commands run in it, and relative paths need
 *   no quoting
 */
export function recoveryConf(parent: Pick<ServerFiles, 'data' | 'archive'>, data: string): string {
  const archived = `"${relative(data, parent.archive)}/%f"`;
  // A copy of a repository has only the archive that was fetched into it.
  if (parent.data === data) return recoverySettings(`cp ${archived} "%p"`);
  const inPlace = `"${relative(data, parent.data)}/pg_wal/%f"`;
  const quiet = '2>/dev/null';
  const command =
    `cp ${archived} "%p" ${quiet} || ` +
    `{ cp ${inPlace} "%p" ${quiet} && test ! -e ${archived}; } || ` +
    `cp ${archived} "%p" ${quiet}`;
  return recoverySettings(command);
}

/**
 * Rolls a fork forward over WAL that `copyWalFrom` has put into its own directory: its server
 * cannot read its parent's. PostgreSQL needs a restore command; this one finds nothing, so that
 * PostgreSQL reads pg_wal.
 */
export function forkRecoveryConf(targetTime: string | null): string {
  return recoverySettings(
    'false',
    ...(targetTime === null ? [] : [`recovery_target_time = ${quoted(numericOffset(targetTime))}`]),
  );
}

function recoverySettings(command: string, ...target: readonly string[]): string {
  return [
    `restore_command = ${quoted(command)}`,
    ...target,
    "recovery_target_action = 'promote'",
    // No client connects before it is promoted.
    'hot_standby = off',
    '',
  ].join('\n');
}

/** Names of time zones, even Z, are not known yet when the server reads this. */
function numericOffset(moment: string): string {
  return moment.replace('T', ' ').replace(/Z$/, '+00:00');
}
