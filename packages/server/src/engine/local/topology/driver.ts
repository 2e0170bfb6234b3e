/**
 * The end of a round, the same for a single server, a cluster and a read replica set: one decided
 * step is performed, and the reconciler gets its verdict.
 */
import type { BeginStep, Seen, ShowProgress, Verdict } from '../../engine.ts';
import { NotYet, Refused } from '../../not-yet.ts';
import { reasonOf } from '../postgres/start-problem.ts';
import type { Ending } from '../../postgres/decisions/decide.ts';

/** A decision: why nothing is changed, or the name of a step as users read it. */
export type Decided = { readonly ending: Ending } | { readonly name: string };

/** One round: the observed state, the decision, and how it is performed. */
export type Round = {
  readonly before: Seen;
  readonly decided: Decided;
  /** Bounds what grows by itself; called when all is done. */
  readonly tidy: () => Promise<void>;
  /** Performs the step. @param show shows how far it is @throws NotYet when it has to wait */
  readonly apply: (show: ShowProgress) => Promise<string>;
  /** Whether the service accepts connections after a step that worked, or failed. */
  readonly isReachableAfter: (worked: boolean) => boolean;
};

/** How long a step that had to wait is not tried again. */
const NOT_YET_MS = 100;

/** Performs the decision of a round. */
export async function finishRound(round: Round, begin: BeginStep): Promise<Verdict> {
  const { decided } = round;
  return 'ending' in decided
    ? endRound(round, decided.ending)
    : performStep(round, decided.name, begin);
}

async function endRound({ before, tidy }: Round, ending: Ending): Promise<Verdict> {
  const nothing = { did: null, detail: null, seen: before };
  switch (ending.kind) {
    case 'settled':
      await tidy();
      return { ...nothing, outcome: 'settled' };
    case 'wait':
      return { ...nothing, detail: ending.why, outcome: 'again', waitMs: ending.waitMs };
    case 'refuse':
      return { ...nothing, outcome: 'failed', reason: ending.why };
  }
}

async function performStep(
  { before, apply, isReachableAfter }: Round,
  name: string,
  begin: BeginStep,
): Promise<Verdict> {
  await begin(name, before);
  try {
    const detail = await apply((line) => void begin(name, before, line));
    const seen = { ...before, reachable: isReachableAfter(true), present: true };
    return { did: name, detail, seen, outcome: 'again', waitMs: 0 };
  } catch (error) {
    const reason = reasonOf(error);
    if (error instanceof NotYet)
      return { did: null, detail: reason, seen: before, outcome: 'again', waitMs: NOT_YET_MS };
    const isFinal = error instanceof Refused;
    // A refusal leaves the service as it was.
    const reachable = isFinal ? before.reachable : isReachableAfter(false);
    const seen = { ...before, reachable };
    return {
      did: name,
      detail: reason,
      seen,
      outcome: 'failed',
      reason: `${name}: ${reason}`,
      ...(isFinal ? { isFinal } : {}),
    };
  }
}
