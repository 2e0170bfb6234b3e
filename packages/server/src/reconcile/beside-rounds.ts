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
  const attempts = new Map<string, Attempt>();
  const begin = (id: string, work: () => Promise<void>): Attempt => {
    const ending = async (): Promise<string | null> => {
      try {
        await work();
        return null;
      } catch (error) {
        attempt.hasFailed = true;
        return error instanceof Error ? error.message : String(error);
      }
    };
    const attempt: Attempt = { hasFailed: false, result: Promise.resolve(null) };
    attempt.result = ending();
    attempts.set(id, attempt);
    return attempt;
  };
  return {
    run: async (id: string, work: () => Promise<void>): Promise<string | null> => {
      const before = attempts.get(id);
      // Its reason may be gone since: the round before may be long ago.
      const attempt = before === undefined || before.hasFailed ? begin(id, work) : before;
      const waiting = new AbortController();
      const late = sleep(waitMs, UNDER_WAY, { signal: waiting.signal }).catch(() => UNDER_WAY);
      const problem = await Promise.race([attempt.result, late]);
      waiting.abort();
      if (problem !== UNDER_WAY) attempts.delete(id);
      return problem;
    },
    /** Work that is done, or under way, is no longer of use: the next call begins it again. */
    forget: (id: string): void => void attempts.delete(id),
  };
}

/** `hasFailed`: it has ended, with a reason. */
type Attempt = { result: Promise<string | null>; hasFailed: boolean };
