/**
 * Limits simultaneous expensive reads: per service, so that one service cannot block the others,
 * and in total.
 */
import { ApiError } from '@howdah/contract';

export type ReadLimits = {
  perService: number;
  total: number;
  /** Waiting calls for one service; more are refused. */
  waitingPerService: number;
};

type Waiting = { serviceId: string; begin: () => void };

/**
 * @param what the name of the reads in a refusal
 * @returns runs `work` in its turn. It throws 503 if too many wait, and the reason of `signal` if
 *   the client leaves meanwhile
 */
export function createReadLimit(
  what: string,
  { perService, total, waitingPerService }: ReadLimits,
) {
  const running = new Map<string, number>();
  const waiting: Waiting[] = [];
  let all = 0;

  const isFree = (serviceId: string): boolean =>
    all < total && (running.get(serviceId) ?? 0) < perService;

  const begin = (serviceId: string): void => {
    all += 1;
    running.set(serviceId, (running.get(serviceId) ?? 0) + 1);
  };

  const end = (serviceId: string): void => {
    all -= 1;
    const left = (running.get(serviceId) ?? 1) - 1;
    if (left === 0) running.delete(serviceId);
    else running.set(serviceId, left);
    const next = waiting.findIndex((one) => isFree(one.serviceId));
    if (next !== -1) waiting.splice(next, 1)[0]?.begin();
  };

  const turn = (serviceId: string, signal: AbortSignal): Promise<void> => {
    const queued = waiting.filter((one) => one.serviceId === serviceId).length;
    if (queued >= waitingPerService)
      throw new ApiError(
        'UNAVAILABLE',
        `${queued} calls wait to read the ${what} of ${serviceId} already, the maximum; ` +
          'try again when they are answered',
      );
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        waiting.splice(waiting.indexOf(one), 1);
        reject(signal.reason);
      };
      const one: Waiting = {
        serviceId,
        begin: () => {
          signal.removeEventListener('abort', leave);
          begin(serviceId);
          resolve();
        },
      };
      waiting.push(one);
      signal.addEventListener('abort', leave, { once: true });
    });
  };

  return async <T>(serviceId: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> => {
    signal.throwIfAborted();
    if (isFree(serviceId)) begin(serviceId);
    else await turn(serviceId, signal);
    try {
      return await work();
    } finally {
      end(serviceId);
    }
  };
}
export type ReadLimit = ReturnType<typeof createReadLimit>;

/** Each call reads and parses at most 16 MiB. */
const LOG_READS: ReadLimits = { perService: 2, total: 4, waitingPerService: 16 };

export const createLogReadLimit = (): ReadLimit => createReadLimit('logs', LOG_READS);
