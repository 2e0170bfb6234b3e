import { expect, test } from 'vitest';
import { notCarriedBy, type Carried, type Leaving } from './not-carried.ts';

const PLAIN: Carried = {
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
  ];
  for (const [part, text] of parts) {
    expect(listOf(FORK, part)).toContain(text);
    expect(listOf(FORK)).not.toContain(text);
  }
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

test('slots are named, up to five, since tenants choose how many there are', () => {
  const slots = Array.from({ length: 7 }, (_, n) => `slot_${n}`);
  for (const kind of ['switchover', 'failover', 'upgrade'] as const) {
    const list = listOf({ kind, slots });
    expect(list).toContain('slot_0, slot_1, slot_2, slot_3, slot_4 and 2 more');
    expect(list).not.toContain('slot_5');
    expect(listOf({ kind, slots: [] })).toContain('replication slots, logical and physical');
  }
});

test('every other operation that leaves something behind says what', () => {
  for (const kind of ['recover', 'undoUpgrade', 'move', 'createFromKit'] as const)
    expect(listOf({ kind })).not.toBe('');
});
