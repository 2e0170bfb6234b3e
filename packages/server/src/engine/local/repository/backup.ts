/** Backs up a snapshot of a service into a repository. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { whyNotServed } from '../../../repository/pgbackrest.ts';
import { RepositoryProblem, type Repository } from '../../../repository/repository.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import { materialise } from '../backup/fork.ts';
import { listSnapshots, type KeptSnapshot, type Snapshot } from '../backup/snapshots.ts';
import { cloneTree } from '../host/clone.ts';
import type { InstancePaths } from '../host/layout.ts';
import { closeSnapshots } from '../postgres/server.ts';
import { ownerOf } from '../host/users.ts';
import { readText } from '../../../lib/untrusted-files.ts';
import {
  type ShipContext,
  type ShipPolicy,
  endGaps,
  type ShipState,
  emptyState,
  readState,
  writeState,
} from './state.ts';
import { makeSpool, removeSpool, spoolOf } from './spool.ts';
import { annotations, ensureStanza, listBackups, runForService } from './stanza.ts';
import { listFiles, removeDirectory } from '../../../repository/objects.ts';

/** `isUrgent`: somebody waits for it, or no moment after it is safe from a lost disk without it. */
type DueBackup = { snapshot: KeptSnapshot; type: 'full' | 'incr'; isUrgent: boolean };

/** The snapshot to back up now; null: none. */
export async function dueBackup(
  paths: InstancePaths,
  { backups, run }: ShipState,
  { backupEveryMs, fullEveryMs }: ShipPolicy,
): Promise<DueBackup | null> {
  const [snapshot] = await listSnapshots(paths);
  const [newest] = backups;
  if (snapshot === undefined || snapshot.id === newest?.snapshot) return null;
  // Moments after a WAL gap can only be reached from a backup of a later snapshot.
  const isCutOff =
    newest !== undefined && run !== null && newest.firstWal.slice(8) < run.first.slice(8);
  if (newest !== undefined && !isCutOff && snapshot.takenMs - newest.takenMs < backupEveryMs)
    return null;
  const full = backups.find(({ type }) => type === 'full');
  const isFullDue = full === undefined || snapshot.takenMs - full.takenMs >= fullEveryMs;
  const isUrgent = newest === undefined || isCutOff;
  return { snapshot, type: isFullDue ? 'full' : 'incr', isUrgent };
}

/** The newest snapshot, to back it up now. @throws Error: there is none */
export async function newestSnapshot(
  paths: InstancePaths,
  type: DueBackup['type'],
): Promise<DueBackup> {
  const [snapshot] = await listSnapshots(paths);
  if (snapshot === undefined)
    throw new Error(
      'it has no snapshot yet: its first one is taken within a minute of its creation',
    );
  return { snapshot, type, isUrgent: true };
}

/** The progress is shown in steps of so many percent. */
const SHOWN_EVERY_PERCENT = 5;

/**
 * Backs up a snapshot. If it is pruned meanwhile, this ends with an error, and the next call takes
 * a newer one.
 *
 * @param progress called with the part that was read, in percent
 * @throws RepositoryProblem
 */
export async function backUp(
  context: ShipContext,
  stanza: string,
  repository: Repository,
  paths: InstancePaths,
  { snapshot, type, isUrgent }: DueBackup,
  progress: (percent: number) => void,
  signal: AbortSignal,
): Promise<void> {
  // Those that an older release has made are open to the service's user until its next start.
  if (context.machine.owner !== null) await closeSnapshots(paths);
  const spool = spoolOf(context, stanza, 'backup');
  await removeSpool(context, spool);
  await makeSpool(context, spool);
  try {
    const data = await dataOf(context, paths, snapshot, join(spool, 'data'));
    const major = Number(readText(join(data, 'PG_VERSION')));
    const why = whyNotServed(context.program, major);
    if (why !== null) throw new RepositoryProblem(why);
    await ensureStanza(context, stanza, repository, data, signal);
    const { verification: _, ...facts } = snapshot;
    await runForService(context, stanza, repository, {
      command: [
        'backup',
        `--type=${type}`,
        ...annotations(asTaken(facts), readText(join(data, 'backup_label'))),
      ],
      asked: 'take a backup',
      options: { 'pg1-path': data },
      readsAll: true,
      isBackground: !isUrgent,
      signal,
      onLine: percents(progress),
    });
  } finally {
    await removeSpool(context, spool);
  }
}

/** Reads the progress in the lines that pgBackRest logs for each file. */
function percents(progress: (percent: number) => void): (line: string) => void {
  let shown = -SHOWN_EVERY_PERCENT;
  return (line) => {
    const percent = Math.floor(Number(/ file .*, ([\d.]+)%\)/.exec(line)?.[1] ?? '0'));
    if (percent < shown + SHOWN_EVERY_PERCENT) return;
    shown = percent;
    progress(percent);
  };
}

/** Updates what is known of the backups of a service. */
export async function refreshBackups(
  context: Pick<ShipContext, 'program'>,
  id: string,
  repository: Repository,
  state: ShipState,
): Promise<void> {
  const backups = await listBackups(context, stanzaOf(id, state.upgrade), repository);
  state.backups = backups.map(
    ({ label, snapshot, takenMs, firstWal, isInitial, type, storageBytes, durationSeconds }) => ({
      label,
      snapshot,
      takenMs,
      firstWal,
      isInitial,
      type,
      storageBytes,
      durationSeconds,
    }),
  );
  endGaps(state);
}

/** An initial snapshot is backed up with its data: the template is not in the repository. */
const asTaken = (snapshot: Snapshot): Snapshot => ({
  ...snapshot,
  template: null,
  systemIdentifier: null,
});

/**
 * The data directory of a snapshot. Where that costs nothing it is a clone, which stays when the
 * snapshot is pruned.
 */
async function dataOf(
  { machine }: ShipContext,
  paths: InstancePaths,
  snapshot: KeptSnapshot,
  clone: string,
): Promise<string> {
  if (snapshot.template !== null) {
    await materialise(machine, ownerOf(machine, paths), paths, snapshot, clone);
    return clone;
  }
  const data = join(paths.snapshots, snapshot.id, 'data');
  if (machine.cloneMethod === 'copy') return data;
  if (!existsSync(clone)) await cloneTree(data, clone, machine, ownerOf(machine, paths));
  return clone;
}

// Removes from a repository what no point in time within the retention needs.

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
