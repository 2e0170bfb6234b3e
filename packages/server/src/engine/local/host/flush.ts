/** Flushes a file system, for many callers at the same time. */
import { FLUSH_DEADLINE_MS } from './loop.ts';
import { run } from '../../../lib/run.ts';

/**
 * Callers during a flush share the next one, which covers everything written before it begins.
 *
 * @param flush flushes everything that was written before it was called
 */
export function createFlush(flush: () => Promise<unknown>): () => Promise<void> {
  let current: Promise<unknown> = Promise.resolve();
  let going = false;
  let next: Promise<void> | null = null;

  const begin = async (): Promise<void> => {
    going = true;
    next = null;
    try {
      await (current = flush());
    } finally {
      going = false;
    }
  };

  return () => {
    if (!going && next === null) return begin();
    next ??= current.then(begin, begin);
    return next;
  };
}

/** The flush of a directory's file system. */
export function flushOf(directory: string): () => Promise<void> {
  return createFlush(() => flushFileSystem(directory));
}

/** Flushes the file system of a directory. */
export async function flushFileSystem(directory: string): Promise<void> {
  await run('sync', ['-f', directory], { deadlineMs: FLUSH_DEADLINE_MS });
}
