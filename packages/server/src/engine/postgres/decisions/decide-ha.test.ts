import { expect, test } from 'vitest';
import {
  decideHa,
  HANGS_AFTER_MS,
  hangs,
  haStepName,
  type HaStep,
  type ClusterSeen,
} from './decide-ha.ts';
import { HA, spec, DEAD, seen, server, SUCCESSOR, smaller, larger } from './decide-ha.testing.ts';
import type { PlacedCluster, PlacedSpec } from './placed-spec.ts';

const RESTORED = spec({ recovery: { id: 'restore', repository: null, at: null } });
const notRecovered = (observed: ClusterSeen): ClusterSeen => ({
  ...observed,
  primary: { ...observed.primary, recovered: false },
});

const ROWS: [string, Partial<PlacedCluster>, ClusterSeen, unknown, PlacedSpec?][] = [
  ['all is well', {}, seen(), server(0, 'settled')],
  [
    'the primary is dead and another can take over',
    {},
    seen(DEAD, {}, { successor: SUCCESSOR }),
    { kind: 'failOver' },
  ],
  [
    'the primary is dead and no standby can take over',
    {},
    seen(DEAD, {}, { successor: { why: 'x' } }),
    server(0, 'start'),
  ],
  [
    'a second writer is stopped before anything else',
    {},
    seen(DEAD, { data: 'primary' }, { successor: SUCCESSOR }),
    { kind: 'fence', n: 1 },
  ],
  [
    'the former primary is dead: it is seeded again',
    {},
    seen({}, { ...DEAD, data: 'primary' }),
    { kind: 'seed', n: 1, why: expect.any(String) },
  ],
  ['the recorded primary is still a standby', {}, seen({ data: 'standby' }), { kind: 'promote' }],
  [
    'no standby is promoted while a second writer runs',
    {},
    seen({ data: 'standby' }, { data: 'primary' }),
    { kind: 'fence', n: 1 },
  ],
  [
    'the primary listens on the public port',
    {},
    seen({ server: { ...smaller, size: 'current', port: 20000 } }),
    { kind: 'moveToGateway' },
  ],
  [
    'the gateway died',
    {},
    seen(
      {},
      {},
      {
        gateway: { running: false, routesToPort: null, placed: true, allowedNetworksCurrent: true },
      },
    ),
    { kind: 'openGateway' },
  ],
  [
    'neither the primary nor the gateway runs: both start at the same time',
    {},
    seen(
      DEAD,
      {},
      {
        successor: { why: 'x' },
        gateway: { running: false, routesToPort: null, placed: true, allowedNetworksCurrent: true },
      },
    ),
    { kind: 'startWithGateway', n: 0 },
  ],
  [
    'they do once its files are there',
    {},
    seen(
      { ...DEAD, filesCurrent: false },
      {},
      {
        successor: { why: 'x' },
        gateway: { running: false, routesToPort: null, placed: true, allowedNetworksCurrent: true },
      },
    ),
    { kind: 'server', n: 0, step: { kind: 'writeFiles' } },
  ],
  [
    'the gateway routes to the former primary',
    {},
    seen(
      {},
      {},
      {
        gateway: { running: true, routesToPort: 20002, placed: true, allowedNetworksCurrent: true },
      },
    ),
    { kind: 'routeGateway' },
  ],
  [
    'a failover does not wait for a gateway',
    {},
    seen(
      DEAD,
      {},
      {
        successor: SUCCESSOR,
        gateway: { running: false, routesToPort: null, placed: true, allowedNetworksCurrent: true },
      },
    ),
    { kind: 'failOver' },
  ],
  [
    'the primary is outside of its VPC: it moves with the gateway',
    {},
    seen({ server: { ...smaller, size: 'current', placed: false } }),
    { kind: 'move', why: 'to leave its VPC' },
  ],
  [
    'the gateway is in another network',
    {},
    seen(
      {},
      {},
      {
        gateway: {
          running: true,
          routesToPort: 20001,
          placed: false,
          allowedNetworksCurrent: true,
        },
      },
    ),
    { kind: 'closeGateway', why: 'to leave its VPC' },
  ],
  [
    'a failover does not wait for a move',
    {},
    seen(
      DEAD,
      {},
      {
        successor: SUCCESSOR,
        gateway: {
          running: true,
          routesToPort: 20001,
          placed: false,
          allowedNetworksCurrent: true,
        },
      },
    ),
    { kind: 'failOver' },
  ],
  [
    'the gateway allows other networks than it must',
    {},
    seen(
      {},
      {},
      {
        gateway: {
          running: true,
          routesToPort: 20001,
          placed: true,
          allowedNetworksCurrent: false,
        },
      },
    ),
    { kind: 'allowNetworks' },
  ],
  [
    'a standby follows into the VPC',
    {},
    seen({}, { server: { ...smaller, size: 'current', port: 20002, placed: false } }),
    server(1, 'stop'),
  ],
  ['a member too many', { servers: [{ n: 0, port: 20001 }] }, seen(), { kind: 'retire', n: 1 }],
  ['a new member', {}, seen({}, { ...DEAD, data: 'absent' }), { kind: 'seed', n: 1, why: 'new' }],
  [
    'a standby too far behind',
    {},
    seen({}, { broken: 'too far' }),
    { kind: 'seed', n: 1, why: 'too far' },
  ],
  ['a slot is missing', {}, seen({}, {}, { slotsCurrent: false }), { kind: 'setSlots' }],
  ['a standby died', {}, seen({}, DEAD), server(1, 'start')],
  [
    'a standby of other settings',
    {},
    seen({}, { ...DEAD, filesCurrent: false }),
    server(1, 'writeFiles'),
  ],
  ['a standby catches up', {}, seen({}, { streaming: false }), server(1, 'wait')],
  ['a standby hangs', {}, seen({}, { silentMs: HANGS_AFTER_MS }), server(1, 'stop')],
  [
    'larger: the standby first',
    {},
    seen({ server: smaller }, { server: { ...smaller, port: 20002 } }),
    server(1, 'stop'),
  ],
  [
    'larger: then they are swapped',
    {},
    seen({ server: smaller }),
    { kind: 'switchOver', to: 1, why: 'for its new settings' },
  ],
  [
    'smaller: the primary first, since a standby may not allow less',
    {},
    seen({ server: larger }, { server: { ...larger, port: 20002 } }),
    { kind: 'restart', why: 'for its new settings' },
  ],
  [
    'the primary is dead and the standby is not connected yet',
    {},
    seen(DEAD, { connected: false }),
    server(1, 'connect'),
  ],
  [
    'the primary is dead and the standby does not answer',
    {},
    seen(DEAD, { connected: false, silentMs: 1 }),
    server(0, 'start'),
  ],
  [
    'the primary hangs and no standby can take over',
    {},
    seen({ silentMs: HANGS_AFTER_MS }, {}, { successor: { why: 'x' } }),
    server(0, 'stop'),
  ],
  ['the primary is only slow', {}, seen({ silentMs: HANGS_AFTER_MS - 1 }), server(0, 'settled')],
  [
    'a switchover was asked for',
    { leave: 0 },
    seen(),
    { kind: 'switchOver', to: 1, why: 'as requested' },
  ],
  [
    'a switchover waits for a standby that catches up',
    { leave: 0 },
    seen({}, { streaming: false }),
    server(1, 'wait'),
  ],
  ['a switchover that was done', { leave: 1 }, seen(), server(0, 'settled')],
  ['a drill was asked for', { drill: 'failover' }, seen(), { kind: 'drill' }],
  ['a drill was interrupted', {}, seen({}, {}, { rehearsed: true }), { kind: 'sweepDrill' }],
  [
    'a drill was interrupted while a standby is down: the standby comes first',
    {},
    seen({}, DEAD, { rehearsed: true }),
    server(1, 'start'),
  ],
  [
    '… or is catching up',
    {},
    seen({}, { streaming: false }, { rehearsed: true }),
    server(1, 'wait'),
  ],
  [
    'a drill was interrupted, and another asked for',
    { drill: 'failover' },
    seen({}, {}, { rehearsed: true }),
    { kind: 'drill' },
  ],
  [
    'no standby can take over for certain yet: this wait comes before seeding, ' +
      'which may take hours',
    { drill: 'failover' },
    seen({}, { data: 'absent' }, { settling: true }),
    {
      kind: 'server',
      n: 0,
      step: { kind: 'wait', why: expect.stringContaining('acknowledged without them'), waitMs: 20 },
    },
  ],
  [
    'the data of all members is to be restored, and the primary runs',
    {},
    notRecovered(seen()),
    server(0, 'stop'),
    RESTORED,
  ],
  [
    'the data of all members is to be restored, and a standby runs',
    {},
    notRecovered(seen(DEAD)),
    server(1, 'stop'),
    RESTORED,
  ],
  [
    'the data of all members is to be restored, and none runs',
    {},
    notRecovered(seen(DEAD, DEAD)),
    server(0, 'setAside'),
    RESTORED,
  ],
  ['its data is gone', {}, seen({ ...DEAD, data: 'absent' }), server(0, 'refuse')],
  [
    'its data is gone, and a standby has every write',
    {},
    seen({ ...DEAD, data: 'absent' }, {}, { successor: SUCCESSOR }),
    { kind: 'failOver' },
  ],
  ['an unknown primary', { primary: 2 }, seen(), server(2, 'refuse')],
];

test.each(ROWS)('%s', (_, more, observed, expected, wanted = spec()) => {
  expect(decideHa(wanted, { ...HA, ...more }, observed)).toEqual(expected);
});

test('a pause ends the primary first, then the others, then the gateway', () => {
  const paused = spec({ power: 'paused' });
  expect(decideHa(paused, HA, seen())).toEqual(server(0, 'stop'));
  expect(decideHa(paused, HA, seen(DEAD))).toEqual(server(1, 'stop'));
  expect(decideHa(paused, HA, seen(DEAD, DEAD))).toEqual({ kind: 'closeGateway', why: 'paused' });
  expect(
    decideHa(
      paused,
      HA,
      seen(DEAD, DEAD, {
        gateway: { running: false, routesToPort: null, placed: true, allowedNetworksCurrent: true },
      }),
    ),
  ).toEqual(server(0, 'settled'));
});

test('a slow member does not count as hanging; a frozen one does at once', () => {
  const frozen = { ...smaller, frozen: true };
  expect(hangs({ server: smaller, silentMs: HANGS_AFTER_MS - 1 })).toBe(false);
  expect(hangs({ server: smaller, silentMs: HANGS_AFTER_MS })).toBe(true);
  expect(hangs({ server: frozen, silentMs: 1 })).toBe(true);
  expect(hangs({ server: frozen, silentMs: null })).toBe(false);
  expect(hangs({ server: null, silentMs: 9999 })).toBe(false);
});

test('every step that does something has a name', () => {
  const steps: HaStep[] = ROWS.map(([, more, observed]) =>
    decideHa(spec(), { ...HA, ...more }, observed),
  );
  for (const step of steps) {
    const looksOnly =
      step.kind === 'server' && ['settled', 'wait', 'refuse'].includes(step.step.kind);
    expect(haStepName(step) === null).toBe(looksOnly);
  }
});
