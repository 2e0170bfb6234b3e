/** Work on several things at a time, each for itself: a slow one delays no other. */
import type { Log } from './log.ts';

export type ParallelWork = Readonly<{
  /** Begins the work on one thing, unless it is under way or all work is to end. */
  begin: (id: string, work: () => Promise<void>) => void;
  /** Whether work under way is to end soon. */
  isEnding: () => boolean;
  /** Nothing begins any more. */
  end: () => void;
  /** Waits for the work that is under way. */
  ended: () => Promise<void>;
}>;

/**
 * @param kind what the ids name, in the log
 * @param interrupted what the log says of work that failed, which a later round begins again
 */
export function createParallelWork(log: Log, kind: string, interrupted: string): ParallelWork {
  const working = new Map<string, Promise<void>>();
  let isEnding = false;
  return {
    begin: (id, work) => {
      if (working.has(id) || isEnding) return;
      const done = work()
        .catch((error: unknown) => log.warn({ [kind]: id, err: error }, interrupted))
        .finally(() => working.delete(id));
      working.set(id, done);
    },
    isEnding: () => isEnding,
    end: () => {
      isEnding = true;
    },
    ended: async () => {
      await Promise.all(working.values());
    },
  };
}
