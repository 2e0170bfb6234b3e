import { expect, test } from 'vitest';
import { usageDocument, whyItTakes, type UsageFacts } from './usage.ts';

const WEEK_MS = 7 * 86_400_000;
const AT = new Date('2026-01-01T00:00:00Z');

const AWAKE: UsageFacts = {
  id: 'linltu4hxx',
  name: "it's mine",
  status: 'READY',
  environment: 'DEV',
  created: AT,
  created_by: 'HDkey',
  key_name: 'ci',
  isForLeases: false,
  origin: null,
  parent_id: null,
  nodes: 1,
  replica_count: 0,
  deleted_at: null,
  kept: null,
  expires_at: null,
  suspended_at: null,
  auto_suspend_seconds: null,
  power: 'running',
  milli_cpu: 10,
  memory_mb: 30,
  has_gateway: false,
  pooler: false,
  vpc_id: null,
  read_replica_sets: [],
  addons: [],
};
const KEPT = { repository: 'r', since: '', until: AT.toISOString(), isRemoved: true };
const FORK = { parent: 'parent0000', strategy: 'NOW', targetTime: null } as const;

test.each([
  ['never falls asleep', {}, "howdah service set-auto-suspend 'it'\\''s mine' 5m"],
  ['is held awake', { auto_suspend_seconds: 60 }, 'howdah service awake'],
  ['cannot fall asleep', { pooler: true }, 'connection pooler; disable that first'],
  ['sleeps', { suspended_at: AT, auto_suspend_seconds: 60 }, 'it sleeps'],
  ['is stopped', { power: 'paused' }, 'it is stopped'],
  ['has replicas', { replica_count: 2, has_gateway: true }, '2 replicas, each with a copy'],
  ['is a fork without an end', { origin: FORK }, 'howdah service set-expiry'],
  ['is a set', { parent_id: 'parent0000', nodes: 2 }, 'read replica set of parent0000: 2 nodes'],
  ['is for leases', { isForLeases: true, origin: FORK }, 'howdah lease list'],
  ['is deleted', { deleted_at: AT }, 'until 2026-01-08T00:00:00.000Z (howdah service purge lin'],
  ['is in a repository only', { deleted_at: AT, kept: KEPT }, 'only its backups in a repository'],
] as const)('a service that %s says so, and what makes it less', (_, facts, said) => {
  expect(whyItTakes({ ...AWAKE, ...facts }, WEEK_MS)).toContain(said);
});

test('a fork that ends is not reproached with having no end', () => {
  expect(whyItTakes({ ...AWAKE, origin: FORK, expires_at: AT }, WEEK_MS)).not.toContain('without');
});

test('replicas and nodes are counted as servers, and what is not known is absent', () => {
  const measured = { storage: null, backupsMb: null, problem: null };
  const of = (facts: Partial<UsageFacts>) =>
    usageDocument({ ...AWAKE, ...facts }, measured, WEEK_MS);
  expect(of({ replica_count: 2 }).servers).toBe(3);
  expect(of({ parent_id: 'parent0000', nodes: 2 })).toMatchObject({
    servers: 2,
    read_replicas_of: 'parent0000',
  });
  expect(of({ created_by: null, key_name: null })).not.toHaveProperty('key_name');
  expect(of({ origin: FORK })).toMatchObject({ forked_from: 'parent0000' });
});

test('disk of its own includes the copies of its replicas', () => {
  const storage = { total_mb: 500, owned_mb: 200, shared_mb: 300 };
  const of = (replica_count: number) =>
    usageDocument({ ...AWAKE, replica_count }, { storage, backupsMb: 7, problem: null }, WEEK_MS);
  expect(of(0)).toMatchObject({ own_mb: 200, shared_mb: 300, backups_mb: 7 });
  expect(of(2)).toMatchObject({ own_mb: 1200, shared_mb: 300, servers: 3 });
});

test('a region that does not answer is named with its reason', () => {
  const measured = { storage: null, backupsMb: null, problem: 'the region far is switched off' };
  expect(usageDocument(AWAKE, measured, WEEK_MS).why).toContain(
    '; its disk was not measured: the region far is switched off',
  );
});
