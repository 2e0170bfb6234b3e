/**
 * An installation whose services may fail over at once, and what the tests of high availability do
 * with them.
 */
import { randomInt } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { describe as anyDescribe, expect, test as anyTest } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Answer } from './harness-caller.ts';
import { startLoad, startSampler, untilConnected, type ServiceAccess } from './ha-load.ts';
import { findProgram } from './probe.ts';

// Without HAProxy there are no replicas.
export const installed = (await findProgram('haproxy')) !== null;

export const describe = anyDescribe.runIf(installed);

export const test = anyTest.runIf(installed);

/**
 * Which directory stands at a path. The tops of all subvolumes of btrfs have one number, each on a
 * device of its own.
 */
export const whichOf = async (path: string): Promise<string> => {
  const { dev, ino } = await stat(path);
  return `${dev} ${ino}`;
};

export let cloud: Installation;

export const SEED = Number(process.env['SEED'] ?? randomInt(2 ** 31));

/** A number from 0 to below 1 that follows from the seed and what it is for. */
export const chance = (what: number): number =>
  (((SEED + what * 2_654_435_761) >>> 0) % 1000) / 1000;

export const pair = (name: string, sync = 1, replicas = 1): Promise<ServiceAccess> =>
  cloud.create({
    name,
    service_type: 'POSTGRES',
    replica_count: replicas,
    sync_replica_count: sync,
  });

export const accepted = ({ status, body }: Answer): void =>
  expect(status, JSON.stringify(body)).toBe(202);

export async function act(service: ServiceAccess, action: string, body?: object): Promise<void> {
  accepted(await cloud.request('POST', `/services/${service.service_id}/${action}`, body));
  await cloud.until(service.service_id, 'READY');
}

export const newest = async (service: ServiceAccess, kind: string) =>
  (await cloud.operations(service.service_id)).find((operation) => operation.kind === kind);

/** Runs something under a load and a sampler, and returns what the load saw. */
export async function underLoad(
  service: ServiceAccess,
  work: (load: Awaited<ReturnType<typeof startLoad>>) => Promise<void>,
  on = cloud,
) {
  const load = await startLoad(on, service);
  const sampler = startSampler(on, service);
  await load.goesOn();
  await work(load);
  await load.goesOn();
  const violations = await sampler.stop();
  const lost = await load.stop();
  return { lost, violations, acknowledged: load.acknowledged.length, refused: load.refused };
}

export const NOTHING_LOST = { lost: [], violations: [] };

/** The roles that a service's primary knows. */
export async function rolesOf(service: ServiceAccess): Promise<string[]> {
  const client = await untilConnected(cloud, service);
  try {
    return (
      await client.query<{ name: string }>('select rolname as name from pg_roles where rolcanlogin')
    ).rows.map(({ name }) => name);
  } finally {
    await client.end();
  }
}

export async function setUp(settings: Record<string, string> = {}): Promise<void> {
  cloud = await install({ HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0', ...settings });
}

export async function tearDown(): Promise<void> {
  expect(await cloud.destroy()).toEqual([]);
}
