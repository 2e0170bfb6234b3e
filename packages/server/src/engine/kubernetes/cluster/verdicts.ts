/** The verdicts of steps that wait or fail. */
import { messageOf } from '@howdah/contract/thrown';
import { EngineUnavailable, type Seen, type Verdict } from '../../engine.ts';
import { KubeError } from '../api/errors.ts';
import type { Away } from '../region/answers.ts';
import type { Region } from '../region/region.ts';
import { STEPS } from './steps.ts';

/** How soon a step that could not be made is tried again. */
export const RETRY_MS = 1000;
/** A cluster or operator that is away is shown within 10 s. */
export const AWAY_MS = 8000;
/** Something that keeps a step from being made is shown once it has lasted this long. */
export const OBSTACLE_MS = 15_000;
/** CloudNativePG may take this long for a step before it is shown that it does not end. */
export const STEP_MS = 180_000;
/** The port of a server that has just started is open within a second or two. */
export const CONNECT_AGAIN_MS = 200;
/** Nodes of a large or busy cluster send connections to a new server after tens of seconds. */
const CONNECT_MS = 60_000;

export const again = (seen: Seen, detail: string, waitMs = RETRY_MS): Verdict => ({
  did: null,
  detail,
  seen,
  outcome: 'again',
  waitMs,
});

/**
 * Fails a step that waits for too long: the reason is shown, and the step is tried again.
 *
 * @param what for what it waits: another thing may take as long again
 * @returns null: it is not too long
 */
export function overdue(
  { waiting }: Pick<Region, 'waiting'>,
  id: string,
  what: string,
  limitMs: number,
  { seen, why }: { seen: Seen; why: string },
): Verdict | null {
  const before = waiting.get(id);
  const sinceMs = before?.what === what ? before.sinceMs : Date.now();
  waiting.set(id, { what, sinceMs });
  if (Date.now() - sinceMs < limitMs) return null;
  return { did: null, detail: why, seen, outcome: 'failed', reason: `${what}: ${why}` };
}

/**
 * Waits for the end of work that the cluster does by itself. A cluster that is away does none,
 * which is shown soon.
 *
 * @param limitMs how long it may take while the cluster and its operator answer
 */
export function waitForCluster(
  { waiting, answers }: Pick<Region, 'waiting' | 'answers'>,
  id: string,
  what: string,
  limitMs: number,
  { seen, why, waitMs }: { seen: Seen; why: string; waitMs?: number },
): Verdict {
  answers.ask();
  const away = answers.away();
  const [shown, withinMs] =
    away === null ? [why, limitMs] : [waitsFor(away), Math.min(limitMs, AWAY_MS)];
  return (
    overdue({ waiting }, id, what, withinMs, { seen, why: shown }) ?? again(seen, shown, waitMs)
  );
}

const waitsFor = ({ why, isClusterSeen }: Away): string =>
  `it waits for ${isClusterSeen ? 'the operator of its cluster' : 'its cluster'}: ${why}`;

/** Kubernetes says so of a server-side apply; a version that is too old is another conflict. */
const CONFLICT = /: Apply failed with \d+ conflicts?:/;

/** A failure that may pass by itself fails the operation once it has lasted. */
export function failed(
  region: Pick<Region, 'waiting'>,
  id: string,
  name: string,
  seen: Seen,
  error: unknown,
): Verdict {
  const message = messageOf(error);
  const why = CONFLICT.test(message)
    ? `${message}; a restart takes the fields of others back`
    : message;
  const isTemporary =
    error instanceof EngineUnavailable || (error instanceof KubeError && error.isTemporary);
  // A drill is not repeated.
  if (isTemporary && name !== STEPS.drill) {
    const [limitMs, waitMs] =
      name === STEPS.connect ? [CONNECT_MS, CONNECT_AGAIN_MS] : [AWAY_MS, RETRY_MS];
    return overdue(region, id, name, limitMs, { seen, why }) ?? again(seen, why, waitMs);
  }
  return { did: name, detail: why, seen, outcome: 'failed', reason: `${name}: ${why}` };
}
