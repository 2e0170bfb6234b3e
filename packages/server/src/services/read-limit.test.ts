import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createReadLimit } from './read-limit.ts';

const LIMITS = { perId: 2, total: 3, waitingPerId: 4 };

/** Reads that run until they are ended, and their order. */
function scene() {
  const limit = createReadLimit('logs', LIMITS);
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const read = (
    serviceId: string,
    name: string,
    signal = new AbortController().signal,
  ): Promise<void> =>
    limit(serviceId, signal, async () => {
      begun.push(name);
      await new Promise<void>((resolve) => ends.set(name, resolve));
    });
  const end = async (name: string): Promise<void> => {
    ends.get(name)?.();
    await setImmediate();
  };
  return { read, begun, end };
}

test('reads of one service wait for each other, and not for those of other services', async () => {
  const { read, begun, end } = scene();
  const all = ['a1', 'a2', 'a3', 'a4'].map((name) => read('a', name));
  await setImmediate();
  expect(begun).toEqual(['a1', 'a2']);
  all.push(read('b', 'b1'), read('b', 'b2'));
  await setImmediate();
  expect(begun).toEqual(['a1', 'a2', 'b1']);
  // The first in the queue whose service has a turn left.
  await end('b1');
  expect(begun).toEqual(['a1', 'a2', 'b1', 'b2']);
  await end('a1');
  expect(begun.at(-1)).toBe('a3');
  for (const name of ['a2', 'b2', 'a3', 'a4']) await end(name);
  await Promise.all(all);
  expect(begun).toHaveLength(6);
});

test('too many waiting reads are refused with 503 and the reason', async () => {
  const { read, end } = scene();
  const reads = Array.from({ length: 6 }, (_, index) => read('a', `a${index}`));
  await expect(read('a', 'refused')).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  await expect(read('a', 'refused')).rejects.toThrow('4 calls wait to read the logs of a');
  const other = read('b', 'b1');
  for (let index = 0; index < 6; index++) await end(`a${index}`);
  await end('b1');
  await Promise.all([...reads, other]);
});

test('a client that leaves leaves the queue, and a failed read ends its turn', async () => {
  const { read, begun, end } = scene();
  const reads = [read('a', 'a1'), read('a', 'a2')];
  const client = new AbortController();
  const left = read('a', 'left', client.signal);
  const last = read('a', 'a3');
  client.abort(new Error('left'));
  await expect(left).rejects.toThrow('left');
  await end('a1');
  expect(begun).toEqual(['a1', 'a2', 'a3']);
  await end('a2');
  await end('a3');
  await Promise.all([...reads, last]);

  const limit = createReadLimit('logs', { ...LIMITS, perId: 1 });
  const { signal } = new AbortController();
  await expect(limit('a', signal, () => Promise.reject(new Error('broken')))).rejects.toThrow(
    'broken',
  );
  expect(await limit('a', signal, () => Promise.resolve(1))).toBe(1);
});
