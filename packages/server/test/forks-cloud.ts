/**
 * An installation that can be stopped at any effect, and forks of services that pages of a ledger
 * are written to.
 */
import { expect } from 'vitest';
import { accessOf, isGone, withClient, type ServiceAccess } from './service-access.ts';
import { installCrashing, type Testbed } from './crash.ts';
import { until } from './until.ts';

/** A service that is deleted here is removed as soon as nobody needs it. */
export let testbed: Testbed;

export let cloud: Testbed['cloud'];

export const newParent = async (name: string): Promise<ServiceAccess> => {
  const parent = await cloud.create({ name, service_type: 'POSTGRES' });
  await withClient(cloud, parent, (client) => client.query(makeLedger));
  return parent;
};

/** Asks for a fork without waiting for it. */
export const askFork = async (parent: ServiceAccess, body: object): Promise<ServiceAccess> => {
  const { status, body: answer } = await cloud.request(
    'POST',
    `/services/${parent.service_id}/forkService`,
    body,
  );
  expect(status, JSON.stringify(answer)).toBe(202);
  return accessOf(answer);
};

export const fork = async (parent: ServiceAccess, body: object): Promise<ServiceAccess> => {
  const child = await askFork(parent, body);
  await cloud.until(child.service_id, 'READY');
  return child;
};

export const roleOf = (parent: ServiceAccess): Record<string, string> => ({
  [parent.service_id]: 'parent',
});

export const remove = ({ service_id }: ServiceAccess) =>
  cloud.request('DELETE', `/services/${service_id}`);

export const gone = (service: ServiceAccess) =>
  until(`service ${service.service_id} is deleted`, () => isGone(cloud, service));

export const clear = async (...services: ServiceAccess[]): Promise<void> => {
  for (const service of services) await remove(service);
  for (const service of services) await gone(service);
  expect(await cloud.audit()).toEqual([]);
};

/**
 * Many tables that one transaction changes together: a copy that is of no one moment shows two
 * values or more.
 */
const TABLES = Array.from({ length: 60 }, (_, n) => `ledger_${n}`);

const makeLedger = TABLES.map((table) => `create table ${table} as select 0 as v`).join(';');

export const turnPage = (parent: ServiceAccess): Promise<unknown> =>
  withClient(cloud, parent, (client) =>
    client.query(
      `begin; ${TABLES.map((table) => `update ${table} set v = v + 1`).join(';')}; commit`,
    ),
  );

export const pagesOf = (service: ServiceAccess): Promise<number[]> =>
  withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ v: number }>(
      TABLES.map((table) => `select v from ${table}`).join(' union '),
    );
    return rows.map(({ v }) => v).toSorted((a, b) => a - b);
  });

export const COPY = 'copyFile services/new.new/data/*';

/**
 * About the middle: files up to 128 KiB are copied in one go, and some 30 of a service are larger.
 */
export const MIDDLE = 15;

export async function setUp(): Promise<void> {
  testbed = await installCrashing({ HOWDAH_RESTORE_HOURS: '0' });
  ({ cloud } = testbed);
}

export async function tearDown(): Promise<void> {
  expect(await testbed.destroy()).toEqual([]);
}
