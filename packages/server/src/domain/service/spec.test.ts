import { expect, test } from 'vitest';
import type { Move } from './row.ts';
import { serviceSpec } from './spec.ts';

test.each<[Move['state'], boolean]>([
  ['copy', true],
  ['switch', true],
  // The superuser of the copy may still be able to log in: the rules that reject it stay.
  ['abort', true],
  ['moved', false],
  ['kept', false],
])('a service whose move is in the state %s has the rules of a source: %s', (state, expected) => {
  const row = Object({ move: { state }, upgrade: null, parent_id: null, vpc_id: null });
  expect(serviceSpec(row).move?.as === 'source').toBe(expected);
});
