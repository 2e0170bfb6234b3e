/**
 * A minor update under running servers. Both versions are real builds of PostgreSQL from npm; the
 * update is two renames, as a package manager makes them for each file.
 */
import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, makeHome, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import { putPostgresql } from './npm-postgresql.ts';
import { findProgram } from './probe.ts';
import { accessOf, insert, namesIn, withClient, type ServiceAccess } from './service-access.ts';
import { during, untilExpected } from './until.ts';

const OLDER = { package: '18.3.0-beta.17', version: '18.3' };
const NEWER = { package: '18.4.0-beta.17', version: '18.4' };

const hasGateway = (await findProgram('haproxy')) !== null;
const hasPooler = (await findProgram('pgbouncer')) !== null;

let cloud: Installation;
let installed: string;
beforeAll(async () => {
  const home = await makeHome();
  installed = join(home, 'data', 'postgres', 'mine');
  await mkdir(join(home, 'data', 'postgres'), { recursive: true });
  await putPostgresql(OLDER.package, installed);
  cloud = await install({ HOWDAH_HOME: home, ...hurried() });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});
const SLOW = { tags: 'slow' };

const create = (name: string, more: object = {}) =>
  cloud.create({ name, service_type: 'POSTGRES', pg_version: '18', ...more });

const versionOf = (service: ServiceAccess): Promise<string | undefined> =>
  withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ server_version: string }>('show server_version');
    return rows[0]?.server_version;
  });

const warningsOf = async ({ service_id: id }: ServiceAccess) =>
  (await cloud.get(id)).warnings ?? [];

/**
 * Asks a service through the transaction pool of its pooler again and again, where there is one.
 *
 * @returns a function that ends this, and returns the errors
 */
async function keepAsking({ service_id: id, initial_password: password }: ServiceAccess) {
  const { connection_pooler: pooler } = await cloud.get(id);
  if (pooler === undefined) return async () => [];
  const client = await connectTo(cloud, pooler, password, { database: 'tsdb_transaction' });
  const errors: string[] = [];
  let isAsking = true;
  const asking = during(
    () => isAsking && errors.length === 0,
    () => client.query('select from t').catch((error: unknown) => errors.push(String(error))),
  );
  return async () => {
    isAsking = false;
    await asking;
    await client.end();
    return errors;
  };
}

test('a newer minor version is shown, and applied by a restart or in a window', SLOW, async () => {
  const service = await create('restarted', {
    enable_pooler: hasPooler,
    ...(hasGateway ? { replica_count: 1, sync_replica_count: 1 } : {}),
  });
  const other = await create('maintained');
  const { service_id: id } = service;
  const readers: ServiceAccess[] = [];
  if (hasGateway) {
    const set = { name: 'reads', cpu_millis: 250, memory_gbs: 1, nodes: 2 };
    const { body } = await cloud.request('POST', `/services/${id}/replicaSets`, set);
    const { initial_password } = service;
    const reader = accessOf({ ...Object(body), service_id: Object(body).id, initial_password });
    await cloud.until(reader.service_id, 'READY');
    readers.push(reader);
  }
  await insert(cloud, service, 'kept');
  for (const one of [service, other, ...readers]) expect(await versionOf(one)).toBe(OLDER.version);
  expect(await warningsOf(service)).toEqual([]);
  expect((await cloud.cli('doctor')).stdout).not.toContain('was replaced or removed since');

  await putPostgresql(NEWER.package, `${installed}.new`);
  await rename(installed, join(cloud.home, 'older'));
  await rename(`${installed}.new`, installed);
  const shown = expect.stringContaining(
    `${NEWER.version} is installed, and it runs ${OLDER.version}: howdah service restart`,
  );
  for (const one of [service, other])
    await untilExpected(`${one.name} shows the newer version`, async () =>
      expect(await warningsOf(one)).toContainEqual({ code: 'MINOR_VERSION', message: shown }),
    );
  // Nothing happens by itself without a window.
  expect(await versionOf(service)).toBe(OLDER.version);
  const { stdout } = await cloud.cli('doctor');
  expect(stdout).toContain('was replaced or removed since');
  expect(stdout).toContain('howdah service restart');

  const stopAsking = await keepAsking(service);
  expect(await cloud.cli('service', 'restart', 'restarted')).toMatchObject({ code: 0 });
  expect(await stopAsking()).toEqual([]);
  expect(await versionOf(service)).toBe(NEWER.version);
  expect(await namesIn(cloud, service)).toEqual(['kept']);
  await untilExpected('the warning is gone', async () =>
    expect(await warningsOf(service)).toEqual([]),
  );
  const restart = (await cloud.operations(id)).find(({ kind }) => kind === 'restart');
  const steps = restart?.steps.map(({ name }) => name) ?? [];
  if (hasGateway) {
    // The standby first, then the switchover.
    expect(steps[0]).toBe('stop PostgreSQL (member 1)');
    expect(steps).toContain('switch over to member 1');
    const { data: instances } = await cloud.client.GET(
      '/projects/{project_id}/services/{service_id}/members',
      { params: { path: { project_id: cloud.projectId, service_id: id } } },
    );
    expect(instances?.find(({ role }) => role === 'primary')?.node).toBe(1);
  } else expect(steps).toEqual(['stop PostgreSQL', 'start PostgreSQL']);
  for (const reader of readers) {
    await cloud.until(reader.service_id, 'READY');
    await untilExpected(`the set runs PostgreSQL ${NEWER.version}`, async () =>
      expect(await versionOf(reader)).toBe(NEWER.version),
    );
  }
  expect(await versionOf(other)).toBe(OLDER.version);

  await cloud.stop('SIGTERM');
  cloud.env['HOWDAH_MAINTENANCE_WINDOW'] = 'daily 00:00-24:00';
  await cloud.up();
  await untilExpected('the window has restarted the other service', async () =>
    expect((await cloud.operations(other.service_id))[0]).toMatchObject({
      kind: 'restart',
      status: 'succeeded',
      requested_by: 'howdah',
    }),
  );
  expect(await versionOf(other)).toBe(NEWER.version);
  expect((await cloud.operations(id)).filter(({ kind }) => kind === 'restart')).toHaveLength(1);
});
