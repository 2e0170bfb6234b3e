import { expect, test } from 'vitest';
import { noteOfSlots, notCarriedBy, type Carried, type Leaving, slotFates } from './not-carried.ts';

const PLAIN: Carried = {
  auto_suspend_seconds: null,
  backup_retention_days: null,
  environment: 'DEV',
  kept: null,
  metric_exporter_id: null,
  pooler: false,
  read_replica_sets: [],
  replica_count: 0,
  status: 'READY',
};
const FORK = {
  kind: 'fork',
  strategy: 'NOW',
  environment: 'DEV',
  newMajor: null,
  sleeps: false,
  place: 'machine',
} as const;
const listOf = (leaving: Leaving, service: Partial<Carried> = {}) =>
  notCarriedBy(leaving, { ...PLAIN, ...service }).join('\n');

test('a fork names what it does not get of its parent, and nothing that the parent lacks', () => {
  const parts: [Partial<Carried>, string][] = [
    [{ pooler: true }, 'connection pooler'],
    [{ replica_count: 1 }, 'its standby'],
    [{ replica_count: 2 }, 'its 2 standbys'],
    [{ metric_exporter_id: 'x' }, 'exporter'],
    [{ backup_retention_days: 30 }, 'backup retention of 30 days'],
    [{ environment: 'PROD' }, 'environment PROD'],
    [{ auto_suspend_seconds: 60 }, 'falls asleep'],
  ];
  for (const [part, text] of parts) {
    expect(listOf(FORK, part)).toContain(text);
    expect(listOf(FORK)).not.toContain(text);
  }
  expect(listOf({ ...FORK, sleeps: true }, { auto_suspend_seconds: 60 })).not.toContain('asleep');
});

test('only a fork of now of a paused service has the state of a server that was shut down', () => {
  const paused = { status: 'PAUSED' } as const;
  expect(listOf(FORK, paused)).not.toMatch(/unlogged|pg_stat/);
  for (const strategy of ['LAST_SNAPSHOT', 'PITR'] as const)
    expect(listOf({ ...FORK, strategy }, paused)).toMatch(/unlogged[^]*pg_stat/);
  expect(listOf({ ...FORK, place: 'cluster' }, paused)).toMatch(/unlogged[^]*pg_stat/);
  const newer = listOf({ ...FORK, newMajor: 18 }, paused);
  expect(newer).toContain('pg_stat');
  expect(newer).toContain('statistics of the planner');
  expect(newer).not.toContain('unlogged');
});

test('a restore loses nothing while the data is on its machine', () => {
  expect(listOf({ kind: 'restore' }, { pooler: true })).toBe('');
  const kept = { repository: 'r', since: '', until: '', isRemoved: true };
  expect(listOf({ kind: 'restore' }, { kept })).toMatch(/slots[^]*unlogged/);
});

const SLOTS = Array.from({ length: 7 }, (_, n) => `slot_${n}`);

test('slots are named, up to five, since tenants choose how many there are', () => {
  const users = SLOTS.map((name) => ({ name, hasFailover: null }));
  for (const leaving of [
    { kind: 'upgrade', slots: SLOTS },
    { kind: 'switchover', slots: slotFates(users, []) },
    { kind: 'failover', slots: slotFates(users, null) },
  ] as const) {
    const list = listOf(leaving);
    expect(list).toContain('slot_0, slot_1, slot_2, slot_3, slot_4 and 2 more');
    expect(list).not.toContain('slot_5');
    // PostgreSQL 16 has no failover slots.
    expect(list).not.toContain('failover => true');
  }
  const none = 'replication slots, logical and physical';
  expect(listOf({ kind: 'upgrade', slots: [] })).toContain(none);
  expect(listOf({ kind: 'switchover', slots: slotFates([], []) })).toContain(none);
});

test('a change of the primary removes slots but those that the standbys have', () => {
  const users = [
    { name: 'plain', hasFailover: false },
    { name: 'kept', hasFailover: true },
    { name: 'late', hasFailover: true },
  ];
  const some = slotFates(users, ['kept']);
  const [removed, unsynchronised] = notCarriedBy({ kind: 'switchover', slots: some }, PLAIN);
  expect(removed).toMatch(/ slots plain: .*failover => true/);
  expect(unsynchronised).toMatch(/failover slots late, unless/);
  expect(noteOfSlots(some)).toContain('kept go on');
  const all = slotFates(users.slice(1), ['kept', 'late']);
  expect(listOf({ kind: 'switchover', slots: all })).not.toContain('slots');
  // In a region where no standby has slots.
  const none = slotFates(users, null);
  expect(listOf({ kind: 'switchover', slots: none })).toMatch(/slots plain, kept, late: .*again$/m);
  expect(noteOfSlots(none)).toBe(undefined);
});

test('every other operation that leaves something behind says what', () => {
  for (const kind of ['recover', 'reset', 'undoUpgrade', 'move', 'createFromKit'] as const)
    expect(listOf({ kind })).not.toBe('');
});
