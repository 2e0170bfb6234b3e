/** Verdicts of the steps of a move. */
import type { Seen, Verdict } from '../engine/engine.ts';
import type { Work } from './work.ts';

/** The state of the service as it was recorded: what happens to the copy does not change it. */
export const seenBefore = ({ service }: Work): Seen => ({
  reachable: service.reachable,
  present: true,
  provisioned: service.provisioned,
});

export function failedBy(work: Work, error: unknown, seen: Seen): Verdict {
  const reason = error instanceof Error ? error.message : String(error);
  return {
    did: work.steps.at(-1)?.name ?? null,
    detail: reason,
    seen,
    outcome: 'failed',
    reason,
  };
}

export const again = (
  seen: Seen,
  did: string | null,
  detail: string | null,
  waitMs = 0,
): Verdict => ({
  did,
  detail,
  seen,
  outcome: 'again',
  waitMs,
});
