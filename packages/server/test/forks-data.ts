/**
 * An installation with frequent snapshots, and names that are written to services and their forks.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { expect } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { createLayout } from './probe.ts';
import { until, untilExpected } from './until.ts';

export let cloud: Installation;

export type ServiceAccess = Service & { initial_password: string };

export function accessOf({ status, body }: Answer): {
  service_id: string;
  initial_password: string;
} {
  expect(status, JSON.stringify(body)).toBe(202);
  if (
    typeof body === 'object' &&
    body !== null &&
    'service_id' in body &&
    'initial_password' in body
  ) {
    return { service_id: String(body.service_id), initial_password: String(body.initial_password) };
  }
  throw new Error(`no service in ${JSON.stringify(body)}`);
}

export async function fork(parent: Service, body: object): Promise<ServiceAccess> {
  const { service_id, initial_password } = accessOf(
    await cloud.request('POST', `/services/${parent.service_id}/forkService`, body),
  );
  return { ...(await cloud.until(service_id, 'READY')), initial_password };
}

export async function withClient<T>(
  service: ServiceAccess,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

export const namesIn = (service: ServiceAccess): Promise<string[]> =>
  withClient(service, async (client) =>
    (await client.query<{ name: string }>('select name from t order by n')).rows.map(
      ({ name }) => name,
    ),
  );

export const insert = (service: ServiceAccess, name: string): Promise<string> =>
  withClient(service, async (client) => {
    await client.query(
      'create table if not exists t (n int generated always as identity primary key, name text)',
    );
    await client.query('insert into t (name) values ($1)', [name]);
    const { rows } = await client.query<{ now: string }>(
      "select to_char(clock_timestamp() at time zone 'UTC', " +
        `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
    );
    return rows[0]?.now ?? '';
  });

/** Waits until the clock is past a moment, also where milliseconds are rounded. */
export const untilAfter = (moment: string): Promise<true> =>
  until(`the clock is past ${moment}`, () => Date.now() > Date.parse(moment) + 1);

export async function backupsOf(service: Service) {
  const { data } = await cloud.client.GET(
    '/projects/{project_id}/services/{service_id}/backupStatus',
    {
      params: { path: { project_id: cloud.projectId, service_id: service.service_id } },
    },
  );
  if (data === undefined) throw new Error('no backups');
  return data;
}

/**
 * Writes names, each into a WAL segment of its own, and removes a segment from the archive.
 * @returns its name
 */
export async function loseFromArchive(
  parent: ServiceAccess,
  files: readonly string[],
): Promise<string> {
  const { archive, socket } = createLayout(join(cloud.home, 'data')).service(parent.service_id);
  // More WAL files, all archived.
  const control = new Client({
    host: socket,
    port: parent.endpoint.port,
    user: 'howdah',
    database: 'postgres',
  });
  await control.connect();
  for (const file of files) {
    await insert(parent, file);
    await control.query('select pg_switch_wal()');
  }
  await control.end();
  await untilExpected('three WAL files are archived', async () =>
    expect(
      (await readdir(archive)).filter((name) => /^[0-9A-F]{24}$/.test(name)).length,
    ).toBeGreaterThan(2),
  );
  const [, lost = ''] = (await readdir(archive)).toSorted();
  await rm(join(archive, lost));
  await rm(join(archive, '..', 'data', 'pg_wal', lost), { force: true });
  return lost;
}

export async function setUp(): Promise<void> {
  // A snapshot is due every 3.6 s of writing.
  cloud = await install({ HOWDAH_SNAPSHOT_HOURS: '0.001' });
}

export async function tearDown(): Promise<void> {
  expect(await cloud.destroy()).toEqual([]);
}
