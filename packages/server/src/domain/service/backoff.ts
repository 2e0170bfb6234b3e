/** The wait before a failed step is tried again. */

export const MAX_BACKOFF_MS = 30_000;

const FIRST_BACKOFF_MS = 500;

/** The wait doubles with each attempt, up to {@link MAX_BACKOFF_MS}. */
export function backoffMs(attempt: number): number {
  return Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.min(attempt - 1, 10));
}
