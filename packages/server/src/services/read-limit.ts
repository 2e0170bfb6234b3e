/**
 * Limits simultaneous expensive reads: for each service or project, so that one cannot block the
 * others, and in total.
 */
import { ApiError } from '@howdah/contract';

export type ReadLimits = {
  perId: number;
  total: number;
  /** Waiting calls for one service or project; more are refused. */
  waitingPerId: number;
};

type Waiting = { id: string; begin: () => void };

/**
 * @param what the name of the reads in a refusal
 * @returns runs `work` in its turn. It throws 503 if too many wait, and the reason of `signal` if
 *   the client leaves meanwhile
 */
export function createReadLimit(what: string, { perId, total, waitingPerId }: ReadLimits) {
  const running = new Map<string, number>();
  const waiting: Waiting[] = [];
  let all = 0;

  const isFree = (id: string): boolean => all < total && (running.get(id) ?? 0) < perId;

  const begin = (id: string): void => {
    all += 1;
    running.set(id, (running.get(id) ?? 0) + 1);
  };

  const end = (id: string): void => {
    all -= 1;
    const left = (running.get(id) ?? 1) - 1;
    if (left === 0) running.delete(id);
    else running.set(id, left);
    const next = waiting.findIndex((one) => isFree(one.id));
    if (next !== -1) waiting.splice(next, 1)[0]?.begin();
  };

  const turn = (id: string, signal: AbortSignal): Promise<void> => {
    const queued = waiting.filter((one) => one.id === id).length;
    if (queued >= waitingPerId)
      throw new ApiError(
        'UNAVAILABLE',
        `${queued} calls wait to read the ${what} of ${id} already, the maximum; ` +
          'try again when they are answered',
      );
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        waiting.splice(waiting.indexOf(one), 1);
        reject(signal.reason);
      };
      const one: Waiting = {
        id,
        begin: () => {
          signal.removeEventListener('abort', leave);
          begin(id);
          resolve();
        },
      };
      waiting.push(one);
      signal.addEventListener('abort', leave, { once: true });
    });
  };

  return async <T>(id: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> => {
    signal.throwIfAborted();
    if (isFree(id)) begin(id);
    else await turn(id, signal);
    try {
      return await work();
    } finally {
      end(id);
    }
  };
}
export type ReadLimit = ReturnType<typeof createReadLimit>;

/** Each call reads and parses at most 16 MiB. */
const LOG_READS: ReadLimits = { perId: 2, total: 4, waitingPerId: 16 };

export const createLogReadLimit = (): ReadLimit => createReadLimit('logs', LOG_READS);

/** Each call measures the disk of up to 64 services. */
const USAGE_READS: ReadLimits = { perId: 1, total: 2, waitingPerId: 8 };

export const createUsageReadLimit = (): ReadLimit => createReadLimit('usage', USAGE_READS);
