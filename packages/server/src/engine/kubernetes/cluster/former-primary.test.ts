import { expect, test } from 'vitest';
import { LOOSE, server, up } from './decide.testing.ts';
import { createReturns, heldBackIn } from './former-primary.ts';
import type { ClusterState } from './state.ts';

const both = [server(0, { isHeldBack: true }), server(1)];

function cluster(change: Partial<ClusterState> = {}): ClusterState {
  const observed = up(LOOSE, { primary: 1, ...change }).cluster;
  if (observed === null) throw new Error('up() makes a Cluster');
  return observed;
}

test.each<[string, Partial<ClusterState>, number | null]>([
  ['the former primary is brought back', {}, 0],
  ['the primary itself is left alone', { primary: 0 }, null],
  ['a change of the primary is waited for', { isChangingPrimary: true }, null],
  ['a Cluster that is being deleted is left alone', { leaving: true }, null],
  ['a fenced Cluster is left alone', { fenced: true }, null],
  ['a Cluster without a primary is left alone', { primary: null }, null],
])('%s', (_, change, expected) => {
  expect(heldBackIn(cluster(change), both)?.n ?? null).toBe(expected);
});

test('one pod is replaced for each change of the primary', async () => {
  const asked: string[] = [];
  const errors: unknown[] = [];
  let isDown = true;
  const remove = async ({ name }: { name: string | null }): Promise<boolean> => {
    asked.push(name ?? '');
    if (isDown) throw new Error('no answer');
    return true;
  };
  let primary = 1;
  const held = (n: number, uid: string) => [server(n, { uid, isHeldBack: true }), server(1 - n)];
  let servers = held(0, 'a');
  const cache = { cluster: () => cluster({ primary }), servers: () => servers };
  const notice = createReturns({ remove }, cache, (error) => errors.push(error));
  notice('abcde12345');
  await expect.poll(() => errors).toHaveLength(1);
  isDown = false;
  notice('abcde12345');
  expect(asked).toEqual(['s-abcde12345-1', 's-abcde12345-1']);
  // The new pod ends again: a pause of Kubernetes has a reason then.
  servers = held(0, 'b');
  notice('abcde12345');
  expect(asked).toHaveLength(2);
  [primary, servers] = [0, held(1, 'c')];
  notice('abcde12345');
  expect(asked[2]).toBe('s-abcde12345-2');
  [primary, servers] = [1, held(0, 'd')];
  notice('abcde12345');
  expect(asked[3]).toBe('s-abcde12345-1');
});
