import type { FastifyBaseLogger } from 'fastify';

/** At most one line in this time: a caller that causes drops must not fill the control log. */
const EVERY_MS = 60_000;

/** Counts what was dropped, and logs the count once a minute. */
export function createDropLog(log: Pick<FastifyBaseLogger, 'warn'>, message: string) {
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  const write = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (dropped > 0) log.warn({ dropped }, message);
    dropped = 0;
  };
  return {
    count: (): void => {
      dropped += 1;
      timer ??= setTimeout(write, EVERY_MS).unref();
    },
    /** Logs what was not logged yet. */
    close: write,
  };
}
