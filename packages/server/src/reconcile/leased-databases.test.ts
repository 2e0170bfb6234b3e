import { expect, test } from 'vitest';
import { createServerWork } from './leased-databases.ts';

/** Work that a test ends, by the ids of its items. */
function setUp(most = 2) {
  const begun: string[] = [];
  const ends = new Map<string, (problem?: Error) => void>();
  const warnings: object[] = [];
  const work = createServerWork(
    most,
    ({ id }: { id: string; serviceId: string }) =>
      new Promise<void>((resolve, reject) => {
        begun.push(id);
        ends.set(id, (problem) => (problem === undefined ? resolve() : reject(problem)));
      }),
    { warn: (facts) => void warnings.push(facts) },
  );
  const add = (...ids: string[]) =>
    work.add(ids.map((id) => ({ id, serviceId: `server ${id[0]}` })));
  return {
    work,
    add,
    begun,
    end: (id: string, problem?: Error) => ends.get(id)?.(problem),
    warnings,
  };
}

test('a slow server delays no other one, and has its work done one after the other', async () => {
  const { add, begun, end } = setUp();
  add('a1', 'a2', 'b1');
  expect(begun).toEqual(['a1', 'b1']);
  end('b1');
  // A round lists again what is not done.
  await expect.poll(() => (add('a1', 'a2', 'b2'), begun)).toEqual(['a1', 'b1', 'b2']);
  add('a3');
  end('a1');
  await expect.poll(() => begun).toEqual(['a1', 'b1', 'b2', 'a2']);
  end('a2');
  await expect.poll(() => begun).toEqual(['a1', 'b1', 'b2', 'a2', 'a3']);
});

test('work is done in so many servers at a time, and in the next ones later', async () => {
  const { add, begun, end } = setUp();
  add('a1', 'b1', 'c1');
  expect(begun).toEqual(['a1', 'b1']);
  end('a1');
  await expect.poll(() => (add('c1'), begun)).toEqual(['a1', 'b1', 'c1']);
});

test('work that failed is begun again by a later round', async () => {
  const { add, begun, end, warnings } = setUp();
  add('a1', 'a2');
  end('a1', new Error('no metadata database'));
  await expect.poll(() => warnings).toHaveLength(1);
  add('a1');
  expect(begun).toEqual(['a1', 'a1']);
});

test('an end waits for work in progress, for a while, and begins none', async () => {
  const { work, add, begun, end } = setUp();
  add('a1', 'a2');
  const closed = work.close(60_000);
  end('a1');
  await closed;
  add('b1');
  expect(begun).toEqual(['a1']);
  const { work: slow, add: addSlow } = setUp();
  addSlow('a1');
  await slow.close(1);
});
