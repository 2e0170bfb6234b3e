import { expect, test } from 'vitest';
import { EngineUnavailable } from '../engine.ts';
import { oneAtATime } from '../moved-data.ts';
import { withinTime } from '../time-limit.ts';

test('an examination has one time limit, however many databases there are', () => {
  let nowMs = 1000;
  const within = withinTime(60_000, () => nowMs);
  expect(within(10_000)).toBe(10_000);
  nowMs += 57_000;
  expect(within(10_000)).toBe(3000);
  nowMs += 3000;
  expect(() => within(10_000)).toThrow(EngineUnavailable);
});

test('a service is examined once at a time', async () => {
  const ends: (() => void)[] = [];
  const examine = oneAtATime(
    (id: string) => new Promise<string>((resolve) => ends.push(() => resolve(id))),
  );
  const first = examine('one');
  await expect(examine('one')).rejects.toThrow(EngineUnavailable);
  const other = examine('two');
  for (const end of ends) end();
  expect(await Promise.all([first, other])).toEqual(['one', 'two']);
  const again = examine('one');
  ends.at(-1)?.();
  expect(await again).toBe('one');
});
