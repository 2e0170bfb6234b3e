import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createDropLog } from './dropped.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('dropped requests are logged in one line a minute, with their count', () => {
  const warn = vi.fn();
  const drops = createDropLog({ warn }, 'dropped');
  for (let ms = 0; ms < 180_000; ms += 100) {
    for (let n = 0; n < 170; n++) drops.count();
    vi.advanceTimersByTime(100);
  }
  drops.close();
  expect(warn.mock.calls.length).toBeLessThanOrEqual(4);
  expect(warn.mock.calls.reduce((sum: number, [{ dropped }]) => sum + Number(dropped), 0)).toBe(
    170 * 1800,
  );
  vi.advanceTimersByTime(600_000);
  drops.close();
  expect(warn.mock.calls.length).toBeLessThanOrEqual(4);
});
