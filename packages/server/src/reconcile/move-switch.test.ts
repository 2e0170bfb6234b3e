import { expect, test } from 'vitest';
import { createTurns, examineBeforeSwitch } from './move-switch.ts';

/** Parts of a move that write down which of their calls were made. */
function parts(lagBytes: number | null) {
  const calls: string[] = [];
  const call =
    <T>(name: string, answer: T) =>
    async (): Promise<T> => {
      calls.push(name);
      return answer;
    };
  const from = {
    checkpoint: call('checkpoint', undefined),
    progress: call('progress', { mayLogIn: true, lagBytes }),
    withhold: call('withhold', undefined),
    read: call('read', { bytes: 1 }),
  };
  const versions = [{ name: 'vector', version: '0.8.0' }];
  const to = {
    describe: call('describe', { missing: [] }),
    versions: call('versions', versions),
  };
  return { calls, from: Object(from), to: Object(to), place: 'machine' as const };
}

test('a service is examined last: what takes time goes before it', async () => {
  const { calls, ...both } = parts(0);
  const { found } = await examineBeforeSwitch(both, 'id');
  expect(calls).toEqual(['checkpoint', 'progress', 'describe', 'versions', 'withhold', 'read']);
  expect(found).toMatchObject({ data: { bytes: 1 }, target: { versions: [{ name: 'vector' }] } });
});

test('a copy that fell behind during the checkpoint is waited for', async () => {
  const { calls, ...both } = parts(1e9);
  expect(await examineBeforeSwitch(both, 'id')).toMatchObject({ found: null });
  expect(calls).toEqual(['checkpoint', 'progress']);
});

test('few moves are examined at a time, and each once a minute', () => {
  const turns = createTurns();
  const enter = (id: string, nowMs: number) => turns.enter({ id }, nowMs);
  const leave = enter('one', 0);
  expect(enter('two', 0)).not.toBe(null);
  expect(enter('three', 0)).toBe(null);
  leave?.();
  expect(enter('one', 59_999)).toBe(null);
  expect(enter('three', 59_999)).not.toBe(null);
  expect(enter('one', 60_000)).toBe(null);
});

test('a move is examined again after a minute', () => {
  const turns = createTurns();
  turns.enter({ id: 'one' }, 0)?.();
  expect(turns.enter({ id: 'one' }, 60_000)).not.toBe(null);
});
