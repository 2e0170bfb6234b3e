/**
 * Every kind of change of a simulated service fails once, and is under way when the control plane
 * dies: reconciler, statuses, operations and cascades, without waiting for any server.
 */
import { followEvents } from '@howdah/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install({ HOWDAH_SIMULATED_REGION: 'yes' });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

/** A call of the operator on the simulated region. */
async function simulate(method: 'PUT' | 'POST', path: string, body: object): Promise<void> {
  const { status } = await fetch(`${cloud.apiUrl}/regions/simulated${path}`, {
    method,
    headers: { Authorization: `Bearer ${cloud.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  expect(status).toBe(200);
}

type Ids = { service: string; vpc: string };
type Change = {
  /** The transition of the script. */
  on: string;
  /** Changes before, without failures. */
  first?: readonly Step[];
  act: Step;
  /** The end: the status of the service, or of what the change creates. */
  ends: 'READY' | 'PAUSED' | 'active' | 'gone';
};
type Step = { method?: 'POST' | 'DELETE'; path: string; body?: (ids: Ids) => object };

const SIZE = { cpu_millis: 250, memory_gbs: 1 };
const REPLICA: Step = { path: '/setHA', body: () => ({ replica_count: 1 }) };
const CHANGES: readonly Change[] = [
  { on: 'stop', act: { path: '/stop' }, ends: 'PAUSED' },
  { on: 'start', first: [{ path: '/stop' }], act: { path: '/start' }, ends: 'READY' },
  {
    on: 'resize',
    act: { path: '/resize', body: () => ({ cpu_millis: '1000', memory_gbs: '4' }) },
    ends: 'READY',
  },
  { on: 'setHA', act: REPLICA, ends: 'READY' },
  { on: 'switchover', first: [REPLICA], act: { path: '/switchover' }, ends: 'READY' },
  {
    on: 'vpc',
    act: { path: '/attachToVPC', body: ({ vpc }) => ({ vpc_id: vpc }) },
    ends: 'READY',
  },
  {
    on: 'readReplicaSet',
    act: { path: '/replicaSets', body: () => ({ name: 'reads', nodes: 1, ...SIZE }) },
    ends: 'active',
  },
  {
    on: 'fork',
    act: { path: '/forkService', body: () => ({ fork_strategy: 'NOW' }) },
    ends: 'READY',
  },
  { on: 'delete', act: { method: 'DELETE', path: '?purge=true' }, ends: 'gone' },
];

async function make(ids: Ids, { method = 'POST', path, body }: Step): Promise<string> {
  const answer = await cloud.request(method, `/services/${ids.service}${path}`, body?.(ids));
  expect(answer.status, JSON.stringify(answer.body)).toBe(202);
  // The answer to a fork is the fork.
  return path === '/forkService' ? String(Object(answer.body).service_id) : ids.service;
}

async function statusOf(id: string, { ends }: Change): Promise<string | undefined> {
  const { status, body } = await cloud.request('GET', `/services/${id}`);
  if (status === 404) return 'gone';
  const { status: shown, read_replica_sets: sets } = Object(body);
  return ends === 'active' ? sets[0]?.status : String(shown);
}

let vpcs = 0;
/** A simulated service on which a change can be made. */
async function prepare({ on, first = [] }: Change): Promise<Ids> {
  await simulate('PUT', '/script', {});
  const made = await cloud.request('POST', '/services', { name: on, region_code: 'simulated' });
  const service = String(Object(made.body).service_id);
  await cloud.until(service, 'READY');
  const body = { name: service, cidr: `10.40.${++vpcs}.0/24`, region_code: 'simulated' };
  const vpc =
    on === 'vpc' ? String(Object((await cloud.request('POST', '/vpcs', body)).body).id) : '';
  const ids = { service, vpc };
  for (const step of first) {
    await make(ids, step);
    await cloud.until(service, step.path === '/stop' ? 'PAUSED' : 'READY');
  }
  return ids;
}

describe.each(CHANGES)('$on', (change) => {
  test('fails once, says why, and ends as wanted', async () => {
    const ids = await prepare(change);
    const reason = `no luck with ${change.on}`;
    await simulate('PUT', '/script', { failures: [{ on: change.on, times: 1, reason }] });
    const id = await make(ids, change.act);
    await untilExpected('the change has ended', async () =>
      expect(await statusOf(id, change)).toBe(change.ends),
    );
    const failing: string[] = [];
    for await (const { type, data } of followEvents({ ...cloud, after: '0', follow: false }))
      if (type === 'operation.failing') failing.push(String(data['error']));
    expect(failing.filter((error) => error.includes(reason))).toHaveLength(1);
  });

  test('goes on after the control plane died while it was under way', async () => {
    const ids = await prepare(change);
    await simulate('PUT', '/script', { clock: 'manual', delays_ms: { [change.on]: 60_000 } });
    const id = await make(ids, change.act);
    await cloud.stop('SIGKILL');
    await cloud.up();
    expect(await statusOf(id, change)).not.toBe(change.ends);
    // A transition of the change may begin only now.
    await untilExpected('the change has ended', async () => {
      await simulate('POST', '/clock', { seconds: 60 });
      expect(await statusOf(id, change)).toBe(change.ends);
    });
  });
});
