import { setImmediate as nextTurn } from 'node:timers/promises';
import { Pool } from 'pg';
import { expect, test } from 'vitest';
import { coalesced } from './coalesced-reads.ts';

/** A pool whose statements wait until they are answered, and what they ask for. */
function heldPool() {
  const asked: string[][] = [];
  const answers: { rows: () => void; error: () => void }[] = [];
  const query = async ({ values: [keys] }: { values: [string[]] }) => {
    asked.push(keys);
    return new Promise((resolve, reject) => {
      const rows = keys.filter((key) => key !== 'absent').map((key) => ({ key, n: asked.length }));
      answers.push({ rows: () => resolve({ rows }), error: () => reject(new Error('broken')) });
    });
  };
  return { pool: Object.assign(new Pool(), { query }), asked, answers };
}

test('the reads of one turn are one statement, with each key once', async () => {
  const { pool, asked, answers } = heldPool();
  const read = coalesced(pool, 'name', 'text');
  const reads = ['a', 'b', 'a', 'absent'].map(read);
  await nextTurn();
  expect(asked).toEqual([['a', 'b', 'absent']]);
  answers[0]?.rows();
  const [a, b] = [
    { key: 'a', n: 1 },
    { key: 'b', n: 1 },
  ];
  expect(await Promise.all(reads)).toEqual([a, b, a, null]);
});

test('two statements run at most, and the next takes all that has come meanwhile', async () => {
  const { pool, asked, answers } = heldPool();
  const read = coalesced(pool, 'name', 'text');
  const reads: Promise<unknown>[] = [];
  for (const key of ['a', 'b', 'c', 'd']) {
    reads.push(read(key));
    await nextTurn();
  }
  expect(asked).toEqual([['a'], ['b']]);
  answers[0]?.rows();
  await reads[0];
  expect(asked).toEqual([['a'], ['b'], ['c', 'd']]);
  answers[1]?.rows();
  answers[2]?.rows();
  await Promise.all(reads);
});

test('a statement that fails rejects its own reads; no read gets an earlier answer', async () => {
  const { pool, asked, answers } = heldPool();
  const read = coalesced(pool, 'name', 'text');
  const failing = [read('a'), read('b')];
  await nextTurn();
  answers[0]?.error();
  for (const one of failing) await expect(one).rejects.toThrow('broken');
  const again = read('a');
  await nextTurn();
  answers[1]?.rows();
  expect(await again).toEqual({ key: 'a', n: 2 });
  expect(asked).toEqual([['a', 'b'], ['a']]);
});
