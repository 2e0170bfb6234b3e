/**
 * How a fork of now gets the data of its parent: by a snapshot of its volume, which takes the same
 * time for any size, and after which the fork needs its parent no more. That of a running parent is
 * a backup. Without a class for snapshots, or without success, a running parent is copied.
 */
import { isStopped, whyNotCopied } from './fork.ts';
import type { Observed } from './observed.ts';
import { STEPS } from './steps.ts';
import { wait, type Wait } from './wait.ts';

export type ForkStep =
  /** Takes a snapshot of the volume of the parent's primary. */
  | Readonly<{ kind: 'snapshot'; name: string; parent: string; primary: number }>
  /** Has the operator take one of the parent while it runs. */
  | Readonly<{ kind: 'backUp'; name: string; parent: string; primary: number }>
  /** The snapshot is taken, or it cannot be; `of` says what has the name of the step. */
  | Readonly<{ kind: 'taken'; name: string; of: 'volume' | 'backup'; detail: string }>;

type Parent = Pick<Observed, 'parent' | 'whyNoBackup'>;

/** @returns null: there is nothing left to take; the fork can be made */
export function decideSnapshot(
  id: string,
  { parent, snapshot, backup, whyNoBackup }: Parent & Pick<Observed, 'snapshot' | 'backup'>,
  snapshotClass: string | null,
): ForkStep | Wait | null {
  const taken = (of: 'volume' | 'backup', detail: string): ForkStep => ({
    kind: 'taken',
    name: STEPS.snapshot,
    of,
    detail,
  });
  const why = whyNotCopied(id, parent);
  const failure = backup?.problem ?? null;
  if (snapshot === null && failure !== null && backup?.isAwaited === true)
    return taken('backup', `none of ${id}, which is copied if it runs: ${failure}`);
  const found = snapshot ?? (failure === null ? backup : null);
  if (found !== null) {
    const obstacle = snapshot === null ? why : snapshot.problem;
    if (!found.ready)
      return wait(STEPS.snapshot, obstacle ?? 'it is being taken', obstacle !== null, TAKING_MS);
    const of = snapshot === null ? 'backup' : 'volume';
    const detail = `of the volume of ${id}${of === 'backup' ? ', which runs' : ''}`;
    return found.isAwaited ? taken(of, detail) : null;
  }
  const isWhole = parent !== null && isStopped(parent) && parent.walClass === null;
  const primary = isWhole ? parent.primary : null;
  if (snapshotClass !== null && primary !== null)
    return { kind: 'snapshot', name: STEPS.snapshot, parent: id, primary };
  if (why !== null) return wait(STEPS.create, why, true);
  if (backup !== null || snapshotClass === null || whyNoBackup !== null) return null;
  if (parent === null || parent.primary === null || parent.isChangingPrimary)
    return wait(STEPS.snapshot, `the primary of its parent ${id} is changing`, false, TAKING_MS);
  return { kind: 'backUp', name: STEPS.snapshot, parent: id, primary: parent.primary };
}

/** How soon a snapshot is looked at again, beside the events of backups. */
const TAKING_MS = 1000;

/** Whether a fork begins with a snapshot. */
export const beginsWithSnapshot = ({
  parent,
  whyNoBackup,
  snapshotClass,
}: Parent & Readonly<{ snapshotClass: string | null }>): boolean =>
  snapshotClass !== null && parent !== null && (isStopped(parent) || whyNoBackup === null);
