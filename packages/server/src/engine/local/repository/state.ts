/**
 * The part of a service that a repository has, in a file of root's in the directory of the service,
 * and the part that it lacks, by the archive. A lost file is made again from the repository, which
 * recognises WAL that is pushed again.
 */
import { join } from 'node:path';
import { writeDurably } from '../../../lib/durable.ts';
import { readOrNull } from '../../../lib/processes.ts';
import type { InstancePaths } from '../host/layout.ts';
import { statEntry } from '../host/service-files.ts';
import { entriesOf, isHistory, isWalFile } from '../postgres/wal-files.ts';
import type { ShipContext } from './context.ts';

/** A backup in a repository. */
export type OffMachineBackup = {
  /** pgBackRest's name for it. */
  label: string;
  /** The id of the snapshot that was backed up. */
  snapshot: string;
  takenMs: number;
  type: 'full' | 'incr';
  /** The size of its addition to the repository. */
  storageBytes: number;
};

export type OffMachine = {
  /** Newest first. */
  backups: OffMachineBackup[];
  /** The window of points in time begins here; null: there is no backup. */
  earliestMs: number | null;
  /** Whatever was committed and acknowledged before is in the repository; null: unknown. */
  safeToMs: number | null;
  /** Archived WAL that is not in the repository yet. */
  backlog: { files: number; bytes: number; oldestMs: number | null };
  /** Why the last attempt failed, in words; null: it did not. */
  problem: string | null;
};

/** A backup, and where the WAL begins that it needs. */
export type KnownBackup = OffMachineBackup & { firstWal: string };

/** The content of the file. */
export type ShipState = {
  repositoryId: string;
  backups: KnownBackup[];
  /** The last WAL file of each timeline that was pushed, by the timeline. */
  pushed: Record<string, string>;
  histories: string[];
  /** The newest WAL that was pushed without a gap; null: none was. */
  run: { first: string; last: string } | null;
  /** The last commit in what was pushed. */
  lastCommitMs: number | null;
  safeToMs: number | null;
  problem: string | null;
};

export const emptyState = (repositoryId: string): ShipState => ({
  repositoryId,
  backups: [],
  pushed: {},
  histories: [],
  run: null,
  lastCommitMs: null,
  safeToMs: null,
  problem: null,
});

const fileOf = ({ root }: InstancePaths, repositoryId: string): string =>
  join(root, `off-machine.${repositoryId}.json`);

/** The state of a service in a repository; null: none was written for this one. */
export async function readState(
  paths: InstancePaths,
  repositoryId: string,
): Promise<ShipState | null> {
  const text = await readOrNull(fileOf(paths, repositoryId));
  // Written completely or not at all, by us.
  const state: ShipState | null = text === null ? null : JSON.parse(text);
  return state === null || state.repositoryId !== repositoryId ? null : state;
}

export async function writeState(paths: InstancePaths, state: ShipState): Promise<void> {
  await writeDurably(fileOf(paths, state.repositoryId), JSON.stringify(state), 0o600);
}

/**
 * The archived files that the repository lacks, in the order in which they are pushed: those of a
 * timeline follow its history. Older ones than any backup needs are left out.
 */
export async function pendingFiles(
  { archive }: InstancePaths,
  state: ShipState,
): Promise<string[]> {
  const oldest = state.backups.at(-1)?.firstWal.slice(8) ?? '';
  return (await entriesOf(archive))
    .filter((name) =>
      isHistory(name)
        ? !state.histories.includes(name)
        : isWalFile(name) &&
          name > (state.pushed[name.slice(0, 8)] ?? '') &&
          name.slice(8) >= oldest,
    )
    .toSorted();
}

/** The state as others see it. */
export async function describeState(paths: InstancePaths, state: ShipState): Promise<OffMachine> {
  const found = (await pendingFiles(paths, state)).flatMap(
    (name) => statEntry(join(paths.archive, name)) ?? [],
  );
  return {
    backups: state.backups.map(({ label, snapshot, takenMs, type, storageBytes }) => ({
      label,
      snapshot,
      takenMs,
      type,
      storageBytes,
    })),
    earliestMs: state.backups.at(-1)?.takenMs ?? null,
    safeToMs: state.safeToMs,
    backlog: {
      files: found.length,
      bytes: found.reduce((sum, { blocks }) => sum + blocks * 512, 0),
      oldestMs: found.length === 0 ? null : Math.min(...found.map(({ mtimeMs }) => mtimeMs)),
    },
    problem: state.problem,
  };
}

/** The state as the last `ship` wrote it; null: this repository never had the service. */
export async function offMachine(
  { machine }: Pick<ShipContext, 'machine'>,
  id: string,
  repositoryId: string,
): Promise<OffMachine | null> {
  const paths = machine.layout.service(id);
  const state = await readState(paths, repositoryId);
  return state === null ? null : describeState(paths, state);
}
