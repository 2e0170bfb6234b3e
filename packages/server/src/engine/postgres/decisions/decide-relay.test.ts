/** The decisions for a service that may fall asleep. */
import { expect, test } from 'vitest';
import type { Sleep } from '../../spec.ts';
import { decide, type RelaySeen, type Observation, type Step } from './decide.ts';
import { DOWN, NONE, phase, spec, WELL } from './decide.testing.ts';
import type { PlacedSpec } from './placed-spec.ts';

const maySleep = (more: Partial<Sleep> = {}, rest: Partial<PlacedSpec> = {}): PlacedSpec =>
  spec({
    serverPort: 20009,
    sleep: { afterSeconds: 60, isAsleep: false, mayStay: true, ...more },
    ...rest,
  });
const ASLEEP = maySleep({ isAsleep: true });
const relay = (state: RelaySeen['state'], current = true): Pick<Observation, 'relay'> => ({
  relay: { state, current },
});
const elsewhere: Observation = {
  ...WELL,
  server: { phase: 'ready', start: 'current', placed: true, elsewhere: true },
};
const open = (state: 'held' | 'asleep' | 'awake'): Step => ({ kind: 'openRelay', state });
const WAKING = {
  kind: 'wait',
  why: 'the first client has the server started',
  waitMs: 20,
} as const;

const RECOVERY = { id: 'restore', repository: null, at: null };
const RECOVERED = maySleep({ isAsleep: true, mayStay: false }, { recovery: RECOVERY });
const upgraded = (undo: boolean): PlacedSpec =>
  maySleep(
    { isAsleep: true, mayStay: false },
    { upgrade: { id: 'upgrade', to: 18, undo, before: null } },
  );
type Row = [string, PlacedSpec, Observation, Step];

/** Steps that need a server at rest. */
const AT_REST: [string, PlacedSpec, Partial<Observation>][] = [
  ['an upgrade', upgraded(false), { upgrade: 'asked' }],
  ['the end of an upgrade', upgraded(false), { upgrade: 'made' }],
  ['an undo', upgraded(true), { upgrade: 'asked' }],
];

test.each<Row>([
  ['a new one is made first', maySleep(), { ...NONE, templateReady: true }, { kind: 'clone' }],
  [
    'clients wait before its first start',
    maySleep(),
    { ...DOWN, provisioned: false },
    open('held'),
  ],
  ['then it starts', maySleep(), { ...DOWN, ...relay('held') }, { kind: 'start' }],
  ['and its clients are connected', maySleep(), { ...WELL, ...relay('held') }, open('awake')],
  ['all is well', maySleep(), { ...WELL, ...relay('awake') }, { kind: 'settled' }],
  ['its networks have changed', maySleep(), { ...WELL, ...relay('awake', false) }, open('awake')],
  ['the activator is gone', maySleep(), WELL, open('awake')],
  ['it sleeps', ASLEEP, { ...DOWN, ...relay('asleep') }, { kind: 'settled' }],
  [
    'it sleeps, which was not recorded',
    maySleep(),
    { ...DOWN, ...relay('asleep') },
    { kind: 'settled' },
  ],
  ['it slept when the machine went down', ASLEEP, DOWN, open('asleep')],
  [
    'it sleeps, with files of an older release',
    ASLEEP,
    { ...DOWN, ...relay('asleep'), filesCurrent: false },
    { kind: 'writeFiles' },
  ],
  ['a client wakes it', ASLEEP, { ...DOWN, ...relay('waking') }, WAKING],
  ['a client has woken it', ASLEEP, { ...WELL, ...relay('waking') }, WAKING],
  [
    'it is awake again',
    ASLEEP,
    { ...WELL, connected: false, ...relay('awake') },
    { kind: 'connect' },
  ],
  ['the activator could not start it', ASLEEP, { ...DOWN, ...relay('held') }, { kind: 'start' }],
  ['it died while it was awake', maySleep(), { ...DOWN, ...relay('awake') }, open('held')],
  [
    'something is asked of a sleeper',
    maySleep({ isAsleep: true, mayStay: false }),
    { ...DOWN, ...relay('asleep') },
    open('held'),
  ],
  [
    'a sleeper that was never provisioned',
    ASLEEP,
    { ...DOWN, provisioned: false, ...relay('asleep') },
    open('held'),
  ],
  ['it gets a relay', maySleep(), elsewhere, stop('to be able to fall asleep')],
  ['it loses its relay', spec(), { ...elsewhere, ...relay('awake') }, stop('to stay awake')],
  ['its relay closes', spec(), { ...DOWN, ...relay('awake') }, { kind: 'closeRelay' }],
  ['a stop', maySleep({}, { power: 'paused' }), { ...WELL, ...relay('awake') }, stop('paused')],
  [
    'a stopped one refuses clients',
    maySleep({}, { power: 'paused' }),
    { ...DOWN, ...relay('awake') },
    { kind: 'closeRelay' },
  ],
  [
    'it is stopped, and a client comes before',
    maySleep({ mayStay: false }, { power: 'paused' }),
    { ...DOWN, ...relay('waking') },
    WAKING,
  ],
  ['it loses its relay, and a client comes', spec(), { ...DOWN, ...relay('waking') }, WAKING],
  [
    'it is recovered, and a client comes before',
    RECOVERED,
    { ...DOWN, ...relay('waking'), recovered: false },
    WAKING,
  ],
  [
    'it is stopped while its server starts',
    maySleep({}, { power: 'paused' }),
    { ...WELL, ...relay('waking') },
    stop('paused'),
  ],
  [
    'a sleeper is stopped',
    maySleep({ isAsleep: true }, { power: 'paused' }),
    { ...DOWN, ...relay('asleep') },
    { kind: 'closeRelay' },
  ],
  ...AT_REST.flatMap(([what, wanted, more]): Row[] => [
    [`${what}: no client wakes it`, wanted, { ...DOWN, ...relay('asleep'), ...more }, open('held')],
    [`${what}: awake a moment ago`, wanted, { ...DOWN, ...relay('awake'), ...more }, open('held')],
    [`${what}: and no server`, wanted, { ...WELL, ...relay('asleep'), ...more }, open('held')],
  ]),
  [
    'a restore: no client wakes it',
    RECOVERED,
    { ...DOWN, ...relay('asleep'), recovered: false },
    open('held'),
  ],
  [
    'its data is set aside',
    RECOVERED,
    { ...DOWN, ...relay('held'), recovered: false },
    { kind: 'setAside', recovery: RECOVERY },
  ],
  [
    'it gets a user of its own',
    ASLEEP,
    { ...DOWN, ...relay('asleep'), owned: false },
    open('held'),
  ],
  [
    'a stopped one gets a user of its own',
    maySleep({}, { power: 'paused' }),
    { ...DOWN, ...relay('asleep'), owned: false },
    { kind: 'closeRelay' },
  ],
  [
    'it is resized while a client wakes it',
    maySleep({ mayStay: false }),
    {
      ...WELL,
      server: { phase: 'ready', start: 'otherSettings', placed: true },
      ...relay('waking'),
    },
    WAKING,
  ],
  [
    'it is restarted while a client wakes it',
    maySleep({ mayStay: false }),
    { ...WELL, server: { phase: 'ready', start: 'restart', placed: true }, ...relay('waking') },
    WAKING,
  ],
  [
    'it loses its relay while a client wakes it',
    spec(),
    { ...elsewhere, ...relay('waking') },
    WAKING,
  ],
  ['its relay is gone, its server is not', spec(), elsewhere, stop('to stay awake')],
  [
    'it recovers from its WAL',
    ASLEEP,
    { ...WELL, ...phase('starting'), ...relay('waking') },
    {
      kind: 'wait',
      why: 'the server is starting; after a crash it first recovers from its WAL',
      waitMs: 20,
    },
  ],
])('%s', (_what, wanted, seen, step) => {
  expect(decide(wanted, seen)).toEqual(step);
});

function stop(why: string): Step {
  return { kind: 'stop', mode: 'fast', why };
}
