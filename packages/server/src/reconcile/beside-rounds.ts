/** Work of a service that may take longer than a round should. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Why work is not done. */
export const UNDER_WAY = 'it is under way';

/**
 * Runs work beside the rounds of its service, once at a time. A tenant can make it take long, and
 * has no place of the reconciler meanwhile.
 *
 * @param waitMs how long a round waits for it: usually it is done by then
 * @returns why it is not done; null: it is
 */
export function createBesideRounds(waitMs: number) {
  const attempts = new Map<string, Promise<string | null>>();
  return async (id: string, work: () => Promise<void>): Promise<string | null> => {
    const attempt =
      attempts.get(id) ??
      work().then(
        () => null,
        (error: unknown) => (error instanceof Error ? error.message : String(error)),
      );
    attempts.set(id, attempt);
    const waiting = new AbortController();
    const late = sleep(waitMs, UNDER_WAY, { signal: waiting.signal }).catch(() => UNDER_WAY);
    const problem = await Promise.race([attempt, late]);
    waiting.abort();
    if (problem !== UNDER_WAY) attempts.delete(id);
    return problem;
  };
}
