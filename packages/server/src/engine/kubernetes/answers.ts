/**
 * Whether the cluster of a region and its operator answer. A watch says nothing of an API server
 * that is cut off, and an operator that is away leaves all objects as they are: both are asked.
 */
import type { Round, Rounds } from '../../lib/rounds.ts';
import { whyNoChanges, type Asked } from './admission.ts';
import { NO_ANSWER } from './unavailable.ts';

/** The part of a region that does not answer, and when it last did; ms since the epoch. */
export type Away = Readonly<{
  why: string;
  /** Whether the API server answers, so that objects are known as they are. */
  isClusterSeen: boolean;
  lastMs: number | null;
}>;

export type Answers = Readonly<{
  /** null: both answer, or nobody has asked yet. */
  away: () => Away | null;
  /** Has them asked soon, since something waits for them. */
  ask: () => void;
}>;

/** A change under way has the reason within 10 s: two questions of up to 3 s each, and this. */
const ASK_AGAIN_MS = 1000;
/** A single answer that is late says nothing: the machine may be busy. */
const FAILURES = 2;

export function keepAnswers(region: Asked, rounds: Rounds): Answers & Pick<Round, 'close'> {
  let why: string | null = null;
  let failures = 0;
  let lastMs: number | null = null;
  let askedMs = 0;
  const round = rounds.every('clusterAnswers', async () => {
    why = await whyNoChanges(region);
    askedMs = Date.now();
    failures = why === null ? 0 : failures + 1;
    if (why === null) lastMs = askedMs;
  });
  round.start();
  return {
    away: () =>
      why === null || failures < FAILURES
        ? null
        : { why, isClusterSeen: why !== NO_ANSWER, lastMs },
    ask: () => {
      if (Date.now() - askedMs >= ASK_AGAIN_MS) void round.run();
    },
    close: round.close,
  };
}
