import { NoAnswerError } from './errors.ts';

/**
 * The answers of a proxy, of a control plane that is just starting, and of
 * one that limits the rate.
 */
const WORTH_ANOTHER_TRY: readonly number[] = [429, 502, 503, 504];
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;

/**
 * A `fetch` that repeats calls that are safe to repeat: GET and HEAD, and calls with an
 * Idempotency-Key.
 */
export function createRetryingFetch(
  retries: number,
  fetch: (request: Request) => Promise<Response>,
) {
  return async (request: Request): Promise<Response> => {
    const safe = ['GET', 'HEAD'].includes(request.method) || request.headers.has('Idempotency-Key');
    // A body can be read once. Copies that Request.clone() makes are no way out: in Node 20.19 one
    // that is collected takes the original's body along.
    const body = await request.arrayBuffer();
    for (let left = safe ? retries : 0; ; left--) {
      const answer = await fetch(
        body.byteLength === 0 ? request : new Request(request, { method: request.method, body }),
      ).catch((error: unknown) => {
        if (request.signal.aborted) throw error;
        return new NoAnswerError(request.url, error);
      });
      const failed = answer instanceof NoAnswerError;
      if (!failed && !WORTH_ANOTHER_TRY.includes(answer.status)) return answer;
      if (left === 0 || (failed && answer.isFinal)) {
        if (failed) throw answer;
        return answer;
      }
      await pause(
        pauseMs(retries - left, failed ? null : answer.headers.get('Retry-After')),
        request.signal,
      );
    }
  };
}

/**
 * The pause doubles with each attempt and is random, so that clients that lost the same server do
 * not return together; the server may ask for another.
 */
function pauseMs(tries: number, retryAfter: string | null): number {
  const asked =
    retryAfter !== null && /^[0-9]{1,4}$/.test(retryAfter) ? Number(retryAfter) * 1000 : 0;
  return Math.min(
    Math.max(asked, FIRST_PAUSE_MS * 2 ** tries * (0.5 + Math.random())),
    LONGEST_PAUSE_MS,
  );
}

/** @throws what `signal` was aborted with */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const ended = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', ended);
      resolve();
    }, ms);
    signal?.addEventListener('abort', ended, { once: true });
  });
}
