/** The decisions of a move that is under way. Pure: `reconcile/move.ts` performs them. */
import type { OperationKind } from '@howdah/contract';
import type { CopyPosition, CopyProgress, WalEnd } from '../../engine/moves.ts';
import type { Move } from './row.ts';

/** A copy that is less behind follows within moments. */
const CLOSE_BYTES = 16 * 1024 * 1024;
/**
 * The source must be stopped, and the copy must have all of it, within this time. Nobody can write
 * meanwhile; after it, the whole copy was in vain.
 */
const SWITCH_WITHIN_MS = 60_000;

/** Whether the move has to be given up: another change has taken the place of its operation. */
export const isSuperseded = ({ state }: Move, operation: OperationKind | null): boolean =>
  (state === 'copy' || state === 'switch') && operation !== 'move';

export const isClose = ({ lagBytes }: CopyProgress): boolean =>
  lagBytes !== null && lagBytes < CLOSE_BYTES;

/** A copy that runs streams within moments, unless WAL that it needs is gone. */
const SILENT_MS = 600_000;

/** Since when a copy that runs does not stream; null: it does. */
export const silentFrom = (
  { silent }: Pick<Move, 'silent'>,
  { lagBytes }: CopyProgress,
  nowMs: number,
): string | null => (lagBytes === null ? (silent ?? new Date(nowMs).toISOString()) : null);

/** Whether a copy will never follow. */
export const isLost = ({ silent }: Pick<Move, 'silent'>, nowMs: number): boolean =>
  silent !== null && nowMs - Date.parse(silent) >= SILENT_MS;

/** How far a copy is, for users. */
export const describeLag = ({ lagBytes }: CopyProgress): string =>
  lagBytes === null ? 'it does not stream yet' : `${(lagBytes / 1e6).toFixed(1)} MB behind`;

/** A switch: where the WAL of the source ends, and how far its copy has replayed. */
export type SwitchSeen = Readonly<
  CopyPosition & {
    end: WalEnd;
    /** Whether the time for it is over. */
    isOver: boolean;
  }
>;

/**
 * The next step of a switch. The last record of the source begins at `end`, so a copy that has
 * replayed it is beyond that.
 */
export function decideSwitch(seen: SwitchSeen): 'hand over' | 'wait' | 'abort' {
  // Somebody has promoted it: it has a past of its own.
  if (!seen.isFollowing) return 'abort';
  const hasAll = seen.end === 'shutdown' ? seen.hasShutdown : seen.replayed > seen.end;
  if (hasAll) return 'hand over';
  return seen.isOver ? 'abort' : 'wait';
}

/** Whether the time in which the copy must have all of the service is over. */
export const isSwitchOver = ({ switched }: Move, nowMs: number): boolean =>
  switched !== null && nowMs - Date.parse(switched) >= SWITCH_WITHIN_MS;

/** An operator that is away restarts nothing, and the service accepts writes meanwhile. */
const RESTARTED_WITHIN_MS = 300_000;

/** Whether a promoted copy is no longer waited for to be restarted by its operator. */
export const isRestartLate = ({ switched }: Move, nowMs: number): boolean =>
  switched !== null && nowMs - Date.parse(switched) >= RESTARTED_WITHIN_MS;

/** How long nobody could write, in words. */
export const describeOutage = ({ switched }: Move, nowMs: number): string =>
  switched === null
    ? ''
    : `nobody could write for ${((nowMs - Date.parse(switched)) / 1000).toFixed(1)} s`;

/** Whether the former server is no longer kept. */
export const isKeptTimeOver = ({ until }: Move, nowMs: number): boolean =>
  until !== null && Date.parse(until) <= nowMs;

/** How often the removal of a former server is tried whose region is switched off. */
const REMOVAL_RETRY_MS = 60_000;

/** The milliseconds until the former server is to be removed; null: it is not known yet. */
export const msUntilNotKept = ({ until }: Pick<Move, 'until'>, nowMs: number): number | null =>
  until === null ? null : Math.max(REMOVAL_RETRY_MS, Date.parse(until) - nowMs);
