import { expect, test } from 'vitest';
import { decide, type Observation, type Step } from './decide.ts';
import { DOWN, spec, WELL } from './decide.testing.ts';
import type { PlacedSpec } from './placed-spec.ts';

const UPGRADED = { upgrade: { id: 'upgrade', to: 18, undo: false, before: null } };
const UNDONE = { upgrade: { ...UPGRADED.upgrade, undo: true } };

test.each<[string, PlacedSpec, Observation, Step['kind']]>([
  ['it runs, and is to be upgraded', spec(UPGRADED), { ...WELL, upgrade: 'asked' }, 'convert'],
  [
    'interrupted between its former and its new data',
    spec(UPGRADED),
    { ...DOWN, directory: 'lost', upgrade: 'made' },
    'exchange',
  ],
  [
    'lost, and was to be upgraded',
    spec(UPGRADED),
    { ...DOWN, directory: 'lost', upgrade: 'asked' },
    'refuse',
  ],
  [
    'lost, and its upgrade is to be undone',
    spec(UNDONE),
    { ...DOWN, directory: 'lost', upgrade: 'asked' },
    'exchange',
  ],
  [
    'to be upgraded, and it must not run',
    spec({ ...UPGRADED, power: 'paused' }),
    { ...DOWN, upgrade: 'made' },
    'settled',
  ],
])('%s', (_, wanted, seen, kind) => {
  expect(decide(wanted, seen).kind).toBe(kind);
});
