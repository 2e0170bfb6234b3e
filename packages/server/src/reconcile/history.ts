/** Throws away what happened long ago: operations first, then the entries of the audit log that tell of no operation any more. */
import { pruneAuditLog } from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import { pruneOperations } from '../store/operations.ts';
import type { Log } from './reconciler.ts';

const EVERY_MS = 3_600_000;

/** @param keptMs how long operations that have ended and entries are kept */
export function createHistory(store: Store, log: Log, keptMs: number) {
  let closing = false;
  let timer: NodeJS.Timeout | undefined;
  let pruning: Promise<void> = Promise.resolve();

  const prune = async (): Promise<void> => {
    try {
      for (const pruneSome of [pruneOperations, pruneAuditLog]) while (!closing && (await pruneSome(store.db, keptMs)));
    } catch (error) {
      log.warn({ err: error }, 'what happened long ago could not be thrown away; it is tried again in an hour');
    }
  };

  const look = (): void => {
    pruning = prune();
  };

  return {
    start: (): void => {
      timer = setInterval(look, EVERY_MS);
      look();
    },
    close: async (): Promise<void> => {
      closing = true;
      clearInterval(timer);
      await pruning;
    },
  };
}
