/** An installation, and what tests of backups ask of it. */
import { readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { expect } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import { createLayout } from './probe.ts';
import { until, untilExpected } from './until.ts';

export let cloud: Installation;

/** Longer than anything here takes to be seen. */

export type ServiceAccess = Service & { initial_password: string };

export const layout = async () => createLayout(await realpath(join(cloud.home, 'data')));

export const pathsOf = async (service: Service) => (await layout()).service(service.service_id);

export async function execute(
  service: ServiceAccess,
  ...statements: string[]
): Promise<Record<string, unknown>[]> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    let rows: Record<string, unknown>[] = [];
    for (const statement of statements)
      rows = (await client.query<Record<string, unknown>>(statement)).rows;
    return rows;
  } finally {
    await client.end();
  }
}

/** As our own superuser. */
export async function asHowdah(service: Service, statement: string): Promise<void> {
  const client = new Client({
    host: (await pathsOf(service)).socket,
    port: service.endpoint.port,
    user: 'howdah',
    database: 'tsdb',
  });
  await client.connect();
  await client.query(statement);
  await client.end();
}

export async function backupsOf(service: Service, { client, projectId } = cloud) {
  const { data } = await client.GET('/projects/{project_id}/services/{service_id}/backupStatus', {
    params: { path: { project_id: projectId, service_id: service.service_id } },
  });
  if (data === undefined) throw new Error('no backups');
  return data;
}

export async function askToVerify(service: Service, { request } = cloud): Promise<string> {
  const answer = await request('POST', `/services/${service.service_id}/backups/verify`);
  expect(answer).toMatchObject({ status: 202, body: { message: expect.any(String) } });
  return answer.headers.get('Operation-Id') ?? '';
}

export async function operation(id: string, { request } = cloud) {
  const { body } = await request('GET', `/operations/${id}`);
  if (typeof body !== 'object' || body === null || !('steps' in body) || !Array.isArray(body.steps))
    throw new Error(JSON.stringify(body));
  const steps: unknown[] = body.steps;
  return { ...body, steps };
}

/** Asks for a verification and waits for its end. */
export async function verify(service: Service, on = cloud) {
  const id = await askToVerify(service, on);
  await untilExpected('the verification has ended', async () =>
    expect(await operation(id, on)).toMatchObject({ finished: expect.any(String) }),
  );
  return operation(id, on);
}

/** How a verification ended, and why. */
export const outcomeOf = (operation: object) => ({
  status: Reflect.get(operation, 'status'),
  error: Reflect.get(operation, 'error'),
});

export const VERIFIED = { status: 'succeeded', error: undefined };

/** Lets a snapshot be taken, and none after it: a control plane begins with seeing to backups. */
export async function snapshotNow(service: Service): Promise<void> {
  const [newest] = (await backupsOf(service)).snapshots;
  const before = newest?.id;
  // Due after 3.6 s, and not before.
  const takenMs = Date.parse(newest?.taken ?? '');
  await until('the next snapshot is due', () => Date.now() > takenMs + 3600);
  await restart({ HOWDAH_SNAPSHOT_HOURS: '0.001' });
  await untilExpected('another snapshot is taken', async () =>
    expect((await backupsOf(service)).snapshots[0]?.id).not.toBe(before),
  );
  await restart({ HOWDAH_SNAPSHOT_HOURS: '24' });
}

export async function restart(settings: Record<string, string>): Promise<void> {
  await cloud.stop('SIGTERM');
  Object.assign(cloud.env, settings);
  await cloud.up();
}

/** The directories of copies. */
export const scratch = async () => readdir((await layout()).scratch);

export async function setUp(): Promise<void> {
  // A deleted service is removed at once.
  cloud = await install({ HOWDAH_RESTORE_HOURS: '0', ...hurried() });
}

export async function tearDown(): Promise<void> {
  expect(await cloud.destroy()).toEqual([]);
}
