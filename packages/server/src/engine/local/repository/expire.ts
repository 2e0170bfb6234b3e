/** Removes from a repository what no point in time within the retention needs. */
import { listFiles, removeDirectory } from '../../../repository/objects.ts';
import type { Repository } from '../../../repository/repository.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import { refreshBackups } from './backup.ts';
import type { ShipContext } from './context.ts';
import { runForService } from './stanza.ts';
import { emptyState, readState, writeState } from './state.ts';

/**
 * Removes backups that are older than the retention, but for those that its first moment is
 * restored from, and the WAL that the others do not need.
 *
 * @param upgrade the upgrade that has made the data of the service
 * @throws RepositoryProblem
 */
export async function expire(
  context: ShipContext,
  id: string,
  upgrade: string | null,
  repository: Repository,
  retentionDays: number,
): Promise<void> {
  const paths = context.machine.layout.service(id);
  const stanza = stanzaOf(id, upgrade);
  const state =
    (await readState(paths, repository.id, upgrade)) ?? emptyState(repository.id, upgrade);
  await runForService(context, stanza, repository, {
    command: ['expire'],
    asked: 'remove old backups',
    isBackground: true,
    options: {
      'repo1-retention-full-type': 'time',
      'repo1-retention-full': String(retentionDays),
    },
  });
  await refreshBackups(context, id, repository, state);
  const oldest = state.backups.at(-1)?.firstWal;
  if (oldest === undefined) return;
  const archive = `archive/${stanza}`;
  const files = await listFiles(context.program, repository, archive);
  for (const directory of directoriesBefore(oldest, files))
    await removeDirectory(context.program, repository, `${archive}/${directory}`);
  await writeState(paths, state);
}

/**
 * The directories with nothing but WAL that is older than a file. pgBackRest keeps 256 files, which
 * are 4 GB of WAL, in each, by the first 16 digits of their names; a directory is removed with one
 * command, single files would take one each. It removes no WAL of offline backups itself.
 *
 * @param files of the archive, by their paths in it
 */
export function directoriesBefore(firstWal: string, files: readonly string[]): string[] {
  const directories = files.flatMap((file) => /^[^/]+\/[0-9A-F]{16}(?=\/)/.exec(file)?.[0] ?? []);
  return [...new Set(directories)].filter(
    (directory) => directory.slice(-8) < firstWal.slice(8, 16),
  );
}

/** Removes all backups and all WAL of a stanza from a repository. @throws RepositoryProblem */
export async function forgetStanza(
  { program }: Pick<ShipContext, 'program'>,
  stanza: string,
  repository: Repository,
): Promise<void> {
  await removeDirectory(program, repository, `backup/${stanza}`);
  await removeDirectory(program, repository, `archive/${stanza}`);
}
