/**
 * Chooses the next step for a copy: a pure function of what is wanted and of what is there. The
 * spec of a copy has its data copied and followed; that of the service has it promoted.
 */

/** A base backup as it is found. */
export type BackupSeen =
  | { kind: 'none' }
  | { kind: 'running'; doneBytes: number; totalBytes: number }
  | { kind: 'done'; bytes: number }
  | { kind: 'failed'; reason: string };

export type CopySeen = {
  /** Whether it must be the service now. */
  isService: boolean;
  /** Whether the name of its directory as a service is taken. */
  isTaken: boolean;
  /** foreign: the directory has no marker of ours. */
  directory: 'ours' | 'absent' | 'foreign';
  /** none: its promotion has not begun; done: its data is that of a service. */
  becoming: 'none' | 'begun' | 'done';
  data: 'absent' | 'standby' | 'other';
  backup: BackupSeen;
  /** Why the base backup must end; null: it need not. */
  excess: string | null;
  /** Whether it knows the server that it follows. */
  mayConnect: boolean;
  /** The copy's server; isCurrent: it was started with the desired settings. */
  server: { isCurrent: boolean } | null;
  /** Why no server can be started on its data; null: one can. */
  notStartable: string | null;
};

export type CopyStep =
  | { kind: 'settled' }
  | { kind: 'refuse'; why: string }
  | { kind: 'begin' }
  | { kind: 'wait'; doneBytes: number; totalBytes: number }
  | { kind: 'giveUp'; why: string }
  | { kind: 'complete'; bytes: number }
  | { kind: 'start' }
  | { kind: 'restart' }
  | { kind: 'promote' }
  | { kind: 'rename' };

/** The names of steps as users read them. */
export const COPY_STEPS = {
  copy: 'copy the data',
  start: 'start the copy',
  promote: 'promote the copy',
} as const;

/** A service of this region, or its former server, has the name that the copy gets. */
export const TAKEN =
  'this region has data of a service with its id, which the copy must not replace: it is removed ' +
  'once its time is over, or with howdah service purge';

const UNPREPARED =
  'its directory is not there any more, or has no certificate: cancel the move, and begin it again';

export function decideCopy(seen: CopySeen): CopyStep {
  if (seen.directory === 'foreign' || seen.isTaken) return { kind: 'refuse', why: TAKEN };
  if (seen.directory === 'absent') return { kind: 'refuse', why: UNPREPARED };
  if (seen.isService) return decideBecoming(seen);
  if (seen.becoming !== 'none')
    return { kind: 'refuse', why: 'its promotion has begun: it does not follow any more' };
  if (!seen.mayConnect) return { kind: 'refuse', why: UNPREPARED };
  switch (seen.data) {
    case 'absent':
      return decideBackup(seen);
    case 'other':
      return { kind: 'refuse', why: 'its data is not that of a standby: cancel the move' };
    case 'standby':
      if (seen.notStartable !== null) return { kind: 'refuse', why: seen.notStartable };
      if (seen.server === null) return { kind: 'start' };
      return seen.server.isCurrent ? { kind: 'settled' } : { kind: 'restart' };
  }
}

function decideBackup({ backup, excess, notStartable }: CopySeen): CopyStep {
  if (excess !== null) return { kind: 'giveUp', why: excess };
  switch (backup.kind) {
    case 'none':
      return notStartable === null ? { kind: 'begin' } : { kind: 'refuse', why: notStartable };
    case 'running':
      return { ...backup, kind: 'wait' };
    case 'failed':
      return { kind: 'giveUp', why: backup.reason };
    case 'done':
      return { kind: 'complete', bytes: backup.bytes };
  }
}

function decideBecoming({ becoming, data, notStartable }: CopySeen): CopyStep {
  if (becoming === 'done') return { kind: 'rename' };
  if (becoming === 'none' && data !== 'standby')
    return { kind: 'refuse', why: 'its copy has no data that could be promoted' };
  if (notStartable !== null) return { kind: 'refuse', why: notStartable };
  return { kind: 'promote' };
}
