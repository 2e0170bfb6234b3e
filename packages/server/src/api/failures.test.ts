import { expect, test } from 'vitest';
import { createFailures, sourceOf } from './failures.ts';

test('so many wrong keys a minute, by address, and then again', () => {
  let nowMs = 0;
  const failures = createFailures(3, () => nowMs);
  expect([1, 2, 3, 4, 5].map(() => failures.note('192.0.2.1'))).toEqual([
    true,
    true,
    true,
    false,
    false,
  ]);
  expect(failures.note('192.0.2.2')).toBe(true);
  nowMs = 59_999;
  expect(failures.note('192.0.2.1')).toBe(false);
  nowMs = 60_000;
  expect(failures.note('192.0.2.1')).toBe(true);
});

test('whose an address is', () => {
  expect(sourceOf('192.0.2.1')).toBe('192.0.2.1');
  expect(sourceOf('::ffff:192.0.2.1')).toBe('192.0.2.1');
  expect(sourceOf('2001:db8:1:2:3:4:5:6')).toBe('2001:db8:1:2');
  expect(sourceOf('2001:db8:1:2::9')).toBe('2001:db8:1:2');
  expect(sourceOf('2001:db8::9')).toBe('2001:db8:0:0');
  expect(sourceOf('::1')).toBe('0:0:0:0');
  expect(sourceOf('')).toBe('');
});
