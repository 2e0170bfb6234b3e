/** An installation whose services have a pooler, and connections through it. */
import { readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { expect, test as anyTest } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import { share } from './shared.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import {
  createLayout,
  findDaemon,
  findProgram,
  type InstancePaths,
  type Process,
} from './probe.ts';
import { until } from './until.ts';

export const installed = (await findProgram('pgbouncer')) !== null;

export const test = anyTest.runIf(installed);

export type Created = Service & { initial_password: string };

export let cloud: Installation;

export const post = (service: Service, action: string, body?: unknown) =>
  cloud.request('POST', `/services/${service.service_id}/${action}`, body);

export const createPooled = (name: string): Promise<Created> =>
  cloud.create({ name, service_type: 'POSTGRES', enable_pooler: true });

/** The pooler of a service, as something to connect to. */
export async function poolerOf(service: Service): Promise<Pick<Service, 'endpoint'>> {
  const { connection_pooler: pooler } = await cloud.get(service.service_id);
  if (pooler === undefined) throw new Error(`service ${service.service_id} has no pooler`);
  return pooler;
}

/** A connection through the pooler, TLS checked against our CA. */
export const through = async (
  service: Created,
  database: string,
  login: { user?: string; password?: string } = {},
) =>
  connectTo(cloud, await poolerOf(service), login.password ?? service.initial_password, {
    database,
    ...(login.user === undefined ? {} : { user: login.user }),
  });

export const pathsOf = async ({ service_id: id }: Service): Promise<InstancePaths> => {
  const data = join(cloud.home, 'data');
  return createLayout(await readlink(data).catch(() => data)).service(id);
};

/** PgBouncer's process; waits until there is one other than `before`. */
export async function pgbouncerOf(service: Service, before?: Process): Promise<Process> {
  const { pooler } = await pathsOf(service);
  return until('another PgBouncer runs', async () => {
    const found = await findDaemon(pooler);
    return found?.pid === before?.pid ? null : found;
  });
}

/** Asks the pooler's console, as root may. */
export async function askConsole(
  service: Service,
  statement: string,
): Promise<Record<string, unknown>[]> {
  const { pooler } = await pathsOf(service);
  const client = new Client({
    host: pooler.root,
    port: (await poolerOf(service)).endpoint.port,
    user: 'howdah',
    database: 'pgbouncer',
  });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(statement)).rows;
  } finally {
    await client.end();
  }
}

export const pidOf = async (client: Client): Promise<number> => {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid ?? 0;
};

/**
 * Waits until the reconciler has looked at a service that is well, after `makeDue` or a start, and
 * wants no further look soon.
 */
export async function untilLookedAt({ service_id: id }: Service, makeDue = false): Promise<void> {
  const { db, close } = await openMetadata(cloud.home);
  if (makeDue)
    await db.updateTable('services').set({ due_at: new Date() }).where('id', '=', id).execute();
  await until('the service is reconciled', async () => {
    const { lease_token: claim, due_at: due } = await db
      .selectFrom('services')
      .select(['lease_token', 'due_at'])
      .where('id', '=', id)
      .executeTakeFirstOrThrow();
    return claim === null && due !== null && due.getTime() > Date.now() + 60_000;
  });
  await close();
}

export async function setUp(): Promise<void> {
  cloud = await share();
}

export async function tearDown(): Promise<void> {
  expect(await cloud.destroy()).toEqual([]);
}
