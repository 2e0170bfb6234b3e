import { expect, test } from 'vitest';
import { BadScript } from '../engine.ts';
import { delayOf, EMPTY_SCRIPT, failureOf, parseScript } from './script.ts';

const attempt = (number: number, failed = 0, serviceId = 'a') =>
  ({ transition: 'create', serviceId, number, failed }) as const;

test('an empty script delays nothing and fails nothing', () => {
  const script = parseScript({});
  expect(script).toEqual(EMPTY_SCRIPT);
  expect(delayOf(script, 'seed', attempt(1))).toBe(0);
  expect(failureOf(script, attempt(1))).toBeNull();
});

test.each([
  [{ delays_ms: { creation: 5 } }, 'script.delays_ms'],
  [{ delays_ms: { create: -1 } }, 'script.delays_ms.create'],
  [{ delays_ms: { create: [5, 1] } }, 'script.delays_ms.create: found 5, 1; least first'],
  [{ failures: [{ on: 'create' }] }, 'script.failures.0'],
  [{ clock: 'fast' }, 'script.clock'],
  [{ events: [{ service_id: 'a', event: 'kill', rows: 1 }] }, 'script.events.0: kill has no rows'],
  [
    { events: [{ service_id: 'a', event: 'write', node: 1 }] },
    'script.events.0: write has no node',
  ],
  ['', 'script'],
])('%j is refused with its place', (value, place) => {
  expect(() => parseScript(value)).toThrow(BadScript);
  expect(() => parseScript(value)).toThrow(place);
});

test('a delay within a range follows from the seed', () => {
  const script = parseScript({ delays_ms: { create: [100, 900] } });
  const delays = [1, 2, 3].map((number) => delayOf(script, 'seed', attempt(number)));
  expect(delays).toEqual([1, 2, 3].map((number) => delayOf(script, 'seed', attempt(number))));
  expect(new Set(delays).size).toBeGreaterThan(1);
  for (const delay of delays) expect(delay).toBeGreaterThanOrEqual(100);
  for (const delay of delays) expect(delay).toBeLessThanOrEqual(900);
});

test('a failure is of one number, of one service, or of some attempts', () => {
  const script = parseScript({
    failures: [
      { on: 'create', nth: 3, reason: 'third' },
      { on: 'create', service_id: 'b', times: 2, reason: 'twice' },
    ],
  });
  expect([1, 2, 3, 4].map((number) => failureOf(script, attempt(number)))).toEqual([
    null,
    null,
    'third',
    null,
  ]);
  expect([0, 1, 2].map((failed) => failureOf(script, attempt(1, failed, 'b')))).toEqual([
    'twice',
    'twice',
    null,
  ]);
});
