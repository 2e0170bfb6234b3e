/** Leases that tests take, and the services whose data they have. */
import type { Schemas } from '@howdah/client';
import { expect } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { share } from './shared.ts';
import { until } from './until.ts';

export let cloud: Installation;
export let metadata: Awaited<ReturnType<typeof openMetadata>>;

export async function setUp(): Promise<void> {
  cloud = await share();
  metadata = await openMetadata(cloud.home);
}

export async function tidyUp(): Promise<void> {
  await cloud.tidy();
  // Without their parents, warm forks go.
  await until('no fork is warm', async () => {
    await cloud.round('warmForks');
    return (await warmForks()).length === 0;
  });
}

export async function tearDown(): Promise<void> {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
}

export type Lease = Schemas['Lease'];
export type Parent = { id: string; password: string };

/** A service with a table of a hundred rows. */
export async function parentOf(name: string): Promise<Parent> {
  const made = await cloud.create({ name, service_type: 'POSTGRES' });
  const client = await connectTo(cloud, made, made.initial_password);
  // An analysis by autovacuum is a commit, after which warm forks are replaced.
  await client.query(
    'create table items with (autovacuum_enabled = off) as select generate_series(1, 100) as id',
  );
  await client.end();
  return { id: made.service_id, password: made.initial_password };
}

export const params = () => ({ path: { project_id: cloud.projectId } });

export async function take(
  parent: Parent,
  body: Partial<Schemas['TakeLeases']> = {},
): Promise<Lease[]> {
  const { data } = await cloud.client.POST('/projects/{project_id}/leases', {
    params: params(),
    body: { from: parent.id, ...body },
  });
  return data?.leases ?? [];
}

export const giveBack = (ids: readonly string[]) =>
  cloud.request('POST', '/leases/return', { lease_ids: ids });

export async function listed(): Promise<Lease[]> {
  const { data } = await cloud.client.GET('/projects/{project_id}/leases', { params: params() });
  return data ?? [];
}

/** Runs a statement in a lease, as a test does. @returns the first column of its rows */
export async function inLease(lease: Lease, sql: string): Promise<unknown[]> {
  const { role: user, database, initial_password: password = '' } = lease;
  const client = await connectTo(cloud, lease, password, { user, database });
  try {
    const { rows } = await client.query<unknown[]>({ text: sql, rowMode: 'array' });
    return rows.map(([first]) => first);
  } finally {
    await client.end();
  }
}

/** The forks that wait for a lease. */
export const warmForks = () =>
  metadata.db
    .selectFrom('services')
    .innerJoin('leased_servers', 'leased_servers.service_id', 'services.id')
    .select(['services.id', 'services.reachable', 'leased_servers.committed'])
    .where('services.project_id', 'is', null)
    .where('services.deleting', '=', false)
    .execute();
