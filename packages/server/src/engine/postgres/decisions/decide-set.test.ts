import { expect, test } from 'vitest';
import { decideSet, setStepName, type NodeSeen, type SetSeen, type SetStep } from './decide-set.ts';
import type { PlacedSpec } from './placed-spec.ts';

const spec = (more: Partial<PlacedSpec> = {}): PlacedSpec => ({
  id: 'abcdefghij',
  addons: [],
  major: null,
  preload: [],
  extension: null,
  size: 'shared',
  storageGb: 10,
  restarts: 0,
  provisioned: false,
  power: 'running',
  endpoint: { host: 'localhost', port: 20000 },
  projectId: null,
  firstVerifier: null,
  origin: null,
  recovery: null,
  upgrade: null,
  pooler: null,
  ha: null,
  vpc: null,
  allowedNetworks: null,
  set: {
    parent: 'klmnopqrst',
    purpose: 'reports',
    nodes: [
      { n: 1, port: 20001 },
      { n: 2, port: 20002 },
    ],
  },
  ...more,
});

const NODE: NodeSeen = {
  n: 1,
  data: 'standby',
  server: { phase: 'ready', size: 'current', port: 20001, frozen: false, placed: true },
  connected: true,
  silentMs: null,
  filesCurrent: true,
  certificateCurrent: true,
  streaming: true,
  broken: null,
  takesWrites: false,
  serving: true,
  eligible: true,
};
const DEAD: Partial<NodeSeen> = {
  server: null,
  connected: false,
  streaming: false,
  serving: false,
  eligible: false,
};
const LARGER: Partial<NodeSeen> = {
  server: { phase: 'ready', size: 'smaller', port: 20001, frozen: false, placed: true },
};

const OPEN = { running: true, placed: true, allowedNetworksCurrent: true };
const CLOSED = { ...OPEN, running: false };

/** A set of two in which all is well, but for what is given. */
const seen = (
  first: Partial<NodeSeen> = {},
  second: Partial<NodeSeen> = {},
  more: Partial<SetSeen> = {},
): SetSeen => ({
  directory: 'ours',
  owned: true,
  nodes: [
    { ...NODE, ...first },
    { ...NODE, n: 2, ...second },
  ],
  gateway: OPEN,
  primaryReady: true,
  slotsCurrent: true,
  pooler: null,
  ...more,
});

const POOLED = { pooler: { port: 20009 } };
const POOLER = { frozen: false, watched: true, current: true, placed: true, disallowedSessions: 0 };

const IN_VPC = { vpc: { id: '1000', address: '10.1.0.2' } };
const MOVES = 'to move into the VPC 1000';
const ELSEWHERE: Partial<NodeSeen> = {
  server: { phase: 'ready', size: 'current', port: 20001, frozen: false, placed: false },
  serving: false,
  eligible: false,
};

test.each<[string, PlacedSpec, SetSeen, object]>([
  ['all is well', spec(), seen(), { kind: 'pooler', step: { kind: 'settled' } }],
  [
    'somebody else’s directory',
    spec(),
    seen({}, {}, { directory: 'foreign' }),
    { kind: 'pooler', step: { kind: 'refuse' } },
  ],
  ['new', spec(), seen(DEAD, DEAD, { directory: 'absent', gateway: CLOSED }), { kind: 'make' }],
  ['a node accepts writes', spec(), seen({ takesWrites: true }), { kind: 'fence', n: 1 }],
  [
    'a node runs on data that accepts writes',
    spec(),
    seen({}, { data: 'primary' }),
    { kind: 'fence', n: 2 },
  ],
  [
    'a node accepts writes, and nothing else is well',
    spec(),
    seen(DEAD, { takesWrites: true }, { gateway: CLOSED }),
    { kind: 'fence' },
  ],
  ['no gateway', spec(), seen({}, {}, { gateway: CLOSED }), { kind: 'openGateway' }],
  ['a node is too far behind', spec(), seen({ eligible: false }), { kind: 'balance' }],
  ['a node has caught up', spec(), seen({ serving: false }), { kind: 'balance' }],
  [
    'it stays too far behind',
    spec(),
    seen({ eligible: false, serving: false }),
    { kind: 'pooler', step: { kind: 'settled' } },
  ],
  [
    'a new primary without slots',
    spec(),
    seen({}, {}, { slotsCurrent: false }),
    { kind: 'setSlots' },
  ],
  ['a node that is to be made', spec(), seen({ ...DEAD, data: 'absent' }), { kind: 'seed', n: 1 }],
  [
    'a node on data that took writes',
    spec(),
    seen({ ...DEAD, data: 'primary' }),
    { kind: 'seed', n: 1 },
  ],
  [
    'the same without a primary',
    spec(),
    seen({ ...DEAD, data: 'absent' }, {}, { primaryReady: false }),
    { step: { kind: 'wait' } },
  ],
  [
    'nor is one that has to be recreated and does not run left alone',
    spec(),
    seen({ ...DEAD, broken: 'incomplete' }, {}, { primaryReady: false }),
    { step: { kind: 'wait' } },
  ],
  [
    'one that runs goes on as it is',
    spec(),
    seen({ broken: 'too far behind' }, {}, { primaryReady: false }),
    { kind: 'pooler', step: { kind: 'settled' } },
  ],
  [
    'another is started before that one is waited for',
    spec(),
    seen({ ...DEAD, data: 'absent' }, DEAD, { primaryReady: false }),
    { kind: 'server', n: 2, step: { kind: 'start' } },
  ],
  ['a node that died', spec(), seen({}, DEAD), { kind: 'server', n: 2, step: { kind: 'start' } }],
  [
    'without a primary it is started too',
    spec(),
    seen({}, DEAD, { primaryReady: false }),
    { kind: 'server', n: 2, step: { kind: 'start' } },
  ],
  ['one that does not follow yet', spec(), seen({ streaming: false }), { step: { kind: 'wait' } }],
  [
    'that of a primary that is away is not waited for',
    spec(),
    seen({ streaming: false }, {}, { primaryReady: false }),
    { step: { kind: 'settled' } },
  ],
  [
    'another primary',
    spec(),
    seen({ filesCurrent: false }),
    { kind: 'server', n: 1, step: { kind: 'reload' } },
  ],
  ['a new size: the first', spec(), seen(LARGER, LARGER), { kind: 'restart', n: 1 }],
  [
    'a new size: the second waits for the first',
    spec(),
    seen({ eligible: false, serving: false }, LARGER),
    { step: { kind: 'wait' } },
  ],
  [
    'one that serves nobody is restarted at once',
    spec(),
    seen({}, { ...LARGER, eligible: false, serving: false }),
    { kind: 'restart', n: 2 },
  ],
  ['a pooler is wanted', spec(POOLED), seen(), { kind: 'pooler', step: { kind: 'startPooler' } }],
  [
    'its role is made on the primary',
    spec(POOLED),
    seen({}, {}, { primaryReady: false }),
    { step: { kind: 'wait' } },
  ],
  [
    'a pooler comes back before another node is restarted',
    spec(POOLED),
    seen({}, LARGER, { pooler: { ...POOLER, watched: false } }),
    { step: { kind: 'reloadPooler' } },
  ],
  [
    'a gateway elsewhere',
    spec(IN_VPC),
    seen({}, {}, { gateway: { ...OPEN, placed: false } }),
    { kind: 'closeGateway', why: MOVES },
  ],
  [
    'it has left its VPC',
    spec(),
    seen({}, {}, { gateway: { ...OPEN, placed: false } }),
    { kind: 'closeGateway', why: 'to leave its VPC' },
  ],
  [
    'other clients are let in',
    spec(IN_VPC),
    seen({}, {}, { gateway: { ...OPEN, allowedNetworksCurrent: false } }),
    { kind: 'allowNetworks' },
  ],
  [
    'a pooler elsewhere goes first',
    spec({ ...IN_VPC, ...POOLED }),
    seen({}, {}, { pooler: { ...POOLER, placed: false }, gateway: { ...OPEN, placed: false } }),
    { kind: 'pooler', step: { kind: 'stopPooler', why: MOVES } },
  ],
  [
    'nodes elsewhere do not wait for each other, nor to follow',
    spec(IN_VPC),
    seen({ ...ELSEWHERE, streaming: false }, ELSEWHERE),
    { kind: 'restart', n: 1 },
  ],
  [
    'the next one elsewhere',
    spec(IN_VPC),
    seen({ streaming: false }, ELSEWHERE),
    { kind: 'restart', n: 2 },
  ],
  [
    'a pooler is wanted no more',
    spec(),
    seen({}, {}, { pooler: POOLER }),
    { step: { kind: 'stopPooler', why: 'disabled' } },
  ],
  [
    'paused: the pooler',
    spec({ ...POOLED, power: 'paused' }),
    seen({}, {}, { pooler: POOLER }),
    { step: { kind: 'stopPooler' } },
  ],
  [
    'paused: the nodes',
    spec({ power: 'paused' }),
    seen(DEAD),
    { kind: 'server', n: 2, step: { kind: 'stop', mode: 'fast' } },
  ],
  ['paused: the gateway', spec({ power: 'paused' }), seen(DEAD, DEAD), { kind: 'closeGateway' }],
  [
    'paused',
    spec({ power: 'paused' }),
    seen(DEAD, DEAD, { gateway: CLOSED }),
    { step: { kind: 'settled' } },
  ],
])('%s', (_, wanted, found, step) => {
  expect(decideSet(wanted, found)).toMatchObject(step);
});

test('steps that change something have a name', () => {
  const steps: SetStep[] = [
    { kind: 'make' },
    { kind: 'fence', n: 1 },
    { kind: 'seed', n: 2, why: 'new' },
    { kind: 'restart', n: 2 },
  ];
  expect(steps.map(setStepName)).toEqual([
    'create directory',
    'stop second writer (node 1)',
    'clone primary (node 2)',
    'restart node 2',
  ]);
  expect(setStepName({ kind: 'pooler', step: { kind: 'settled' } })).toBeNull();
});
