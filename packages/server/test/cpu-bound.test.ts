/** The CPU of a size as a bound: of a service, and of an installation. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { callerOf, type Service } from './harness-caller.ts';
import { install, type Installation } from './harness.ts';
import { memberKey, prepareMachine, type Machine } from './probe.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
let limits: Machine['limits'];
let service: Service;
beforeAll(async () => {
  cloud = await install();
  service = await cloud.create({ name: 'orders', service_type: 'POSTGRES' });
  ({ limits } = await prepareMachine(cloud.home));
});
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

/** The quota and the period of a server, in µs; null: it has no quota. */
async function quotaOf(key: string): Promise<[number, number] | null> {
  if (limits.kind === 'none') throw new Error(limits.why);
  const [group, files] =
    limits.kind === 'v2'
      ? [limits.root, ['cpu.max']]
      : [limits.cpu, ['cpu.cfs_quota_us', 'cpu.cfs_period_us']];
  const texts = await Promise.all(files.map((file) => readFile(join(group, key, file), 'utf8')));
  const [quota = '', period = ''] = texts.join(' ').split(/\s+/);
  return quota === 'max' || quota === '-1' ? null : [Number(quota), Number(period)];
}

const untilQuota = (key: string, wanted: [number, number] | null): Promise<void> =>
  limits.kind === 'none'
    ? Promise.resolve()
    : untilExpected(`the quota of ${key}`, async () => expect(await quotaOf(key)).toEqual(wanted));

/** Resizes a service. @returns the steps of it */
async function resize(id: string, body: object): Promise<string[]> {
  const answer = await cloud.request('POST', `/services/${id}/resize`, body);
  expect(answer).toMatchObject({ status: 202 });
  await cloud.until(id, 'READY');
  const [latest] = await cloud.operations(id);
  return (latest?.steps ?? []).map(({ name }) => name);
}

const boundOf = async (id: string) => (await cloud.get(id)).resources[0]?.spec.cpu_bound;

async function restartPlane(bound: 'none' | 'size'): Promise<void> {
  await cloud.stop('SIGTERM');
  cloud.env['HOWDAH_CPU_BOUND'] = bound;
  await cloud.up();
}

test('a bound of a service is a quota of its size, set and lifted while it runs', async () => {
  const { service_id: id } = service;
  await untilQuota(id, null);
  expect(await resize(id, { cpu_bound: true })).toEqual(['reload configuration']);
  await untilQuota(id, [10_000, 20_000]);
  expect(await boundOf(id)).toBe(true);
  // Where the region has no bound, there is nothing that a service is exempted from.
  await resize(id, { cpu_bound: false });
  await untilQuota(id, null);
  expect(await boundOf(id)).toBeUndefined();
  const same = await cloud.request('POST', `/services/${id}/resize`, { cpu_bound: null });
  expect(same.headers.get('Operation-Id')).toBeNull();
});

test('a bound of the installation holds running servers unless exempted', async () => {
  const { service_id: id } = service;
  await restartPlane('size');
  await untilQuota(id, [10_000, 20_000]);
  const made = await cloud.request('POST', '/keys', { name: 'tenant', role: 'developer' });
  const { public_key, secret_key } = Object(made.body);
  const tenant = callerOf({ ...cloud, key: `${public_key}:${secret_key}` });
  const refused = await tenant.request('POST', `/services/${id}/resize`, { cpu_bound: false });
  expect(refused).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } });
  await resize(id, { cpu_bound: false });
  await untilQuota(id, null);
  expect(await boundOf(id)).toBe(false);
  await resize(id, { cpu_bound: null });
  await untilQuota(id, [10_000, 20_000]);
  await restartPlane('none');
  await untilQuota(id, null);
});

test(
  'standbys, read replica sets and forks are bound as their service is',
  { tags: 'slow' },
  async () => {
    const { service_id: id } = service;
    await cloud.request('POST', `/services/${id}/setHA`, { replica_count: 1 });
    await cloud.until(id, 'READY');
    const set = await cloud.request('POST', `/services/${id}/replicaSets`, {
      name: 'readers',
      nodes: 1,
      cpu_millis: 500,
      memory_gbs: 2,
    });
    const { id: setId } = Object(set.body);
    await untilExpected('the set is active', async () =>
      expect((await cloud.get(id)).read_replica_sets).toMatchObject([{ status: 'active' }]),
    );
    await resize(id, { cpu_bound: true });
    for (const key of [id, memberKey(id, 1), memberKey(setId, 1)])
      await untilQuota(key, [10_000, 20_000]);
    const fork = await cloud.request('POST', `/services/${id}/forkService`, {
      fork_strategy: 'NOW',
      cpu_millis: 1000,
    });
    const { service_id: forkId } = Object(fork.body);
    await cloud.until(forkId, 'READY');
    await untilQuota(forkId, [20_000, 20_000]);
    expect(await boundOf(forkId)).toBe(true);
  },
);
