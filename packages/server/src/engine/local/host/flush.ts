/** Brings a file system to the disk, for many who want that at the same time. */
import { FLUSH_DEADLINE_MS } from './loop.ts';
import { run } from '../../../lib/run.ts';

/**
 * Who asks while a flush goes on shares the next one with all others who do: it covers what was written before it begins.
 *
 * @param flush brings all that was written before it was called to the disk
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

/** The file system that a directory stands on. */
export function flushOf(directory: string): () => Promise<void> {
  return createFlush(() => flushFileSystem(directory));
}

/** Brings all that was written to the file system of a directory to the disk. */
export async function flushFileSystem(directory: string): Promise<void> {
  await run('sync', ['-f', directory], { deadlineMs: FLUSH_DEADLINE_MS });
}
