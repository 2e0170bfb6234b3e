/** Services on two major versions: one from npm in `data/postgres`, beside those of the machine. */
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findProgram } from '../src/engine/local/host/daemon.ts';
import { install, makeHome, preload, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { putPostgresql } from './npm-postgresql.ts';
import {
  accessOf,
  insert,
  moment,
  namesIn,
  verificationOf,
  withClient,
  type ServiceAccess,
} from './service-access.ts';

/** No other test has it, and no machine of ours. */
const MAJOR = '16';
const PACKAGE = '16.14.0-beta.17';

let cloud: Installation;
let installed: string;
beforeAll(async () => {
  const home = await makeHome();
  installed = join(home, 'data', 'postgres', 'older');
  await mkdir(join(home, 'data', 'postgres'), { recursive: true });
  await putPostgresql(PACKAGE, installed);
  cloud = await install({ HOWDAH_HOME: home, HOWDAH_SPARES: '1', ...preload('hurried.mjs') });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const create = (name: string, more: object = {}): Promise<ServiceAccess & Service> =>
  cloud.create({ name, service_type: 'POSTGRES', ...more });

const call = (service: ServiceAccess, path: string, body?: object) =>
  cloud.request('POST', `/services/${service.service_id}/${path}`, body);

/** Makes a change, and waits until the service accepts connections again. */
async function change(service: ServiceAccess, path: string, body?: object): Promise<void> {
  expect(await call(service, path, body)).toMatchObject({ status: 202 });
  await cloud.until(service.service_id, path === 'stop' ? 'PAUSED' : 'READY');
}

/** The major version of a server, as it says itself. */
async function majorOf(service: ServiceAccess): Promise<string | undefined> {
  return withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ server_version: string }>('show server_version');
    return rows[0]?.server_version.split('.')[0];
  });
}

async function forked(parent: ServiceAccess, body: object): Promise<ServiceAccess> {
  const fork = accessOf((await call(parent, 'forkService', body)).body);
  await cloud.until(fork.service_id, 'READY');
  return fork;
}

test(
  'a service has the version that was asked for, as have its forks and replicas',
  { tags: 'slow' },
  async () => {
    const { data: regions } = await cloud.client.GET('/projects/{project_id}/regions', {
      params: { path: { project_id: cloud.projectId } },
    });
    const offer = regions?.[0]?.service_types.find(
      ({ service_type }) => service_type === 'POSTGRES',
    );
    const byDefault = offer?.version?.split('.')[0];
    expect(byDefault).not.toBe(MAJOR);
    expect(offer?.versions.map(({ pg_version: major }) => major)).toEqual(
      expect.arrayContaining([byDefault, MAJOR]),
    );

    const usual = await create('usual');
    expect(usual.pg_version).toBe(byDefault);
    expect(await majorOf(usual)).toBe(byDefault);
    const service = await create('older', { pg_version: MAJOR });
    expect(service.pg_version).toBe(MAJOR);
    expect(await majorOf(service)).toBe(MAJOR);

    await insert(cloud, service, 'kept');
    const then = await moment(cloud, service);
    await insert(cloud, service, 'later');
    const now = await forked(service, { fork_strategy: 'NOW', pg_version: MAJOR });
    const past = await forked(service, { fork_strategy: 'PITR', target_time: then });
    expect([await majorOf(now), await majorOf(past)]).toEqual([MAJOR, MAJOR]);
    expect(await namesIn(cloud, past)).toEqual(['kept']);
    expect((await cloud.get(past.service_id)).pg_version).toBe(MAJOR);

    if ((await findProgram('haproxy')) !== null) {
      await change(service, 'setHA', { replica_count: 1, sync_replica_count: 1 });
      await change(service, 'switchover');
      const set = { name: 'reads', cpu_millis: 250, memory_gbs: 1, nodes: 1 };
      const made = Object((await call(service, 'replicaSets', set)).body);
      await cloud.until(made.id, 'READY');
      const reader = { ...made, initial_password: service.initial_password };
      expect(await majorOf(reader)).toBe(MAJOR);
      expect(await cloud.get(made.id)).toMatchObject({ pg_version: MAJOR });
    }
    await change(service, 'resize', { cpu_millis: 1000 });
    expect(await majorOf(service)).toBe(MAJOR);
    await change(service, 'stop');
    await change(service, 'start');
    expect(await majorOf(service)).toBe(MAJOR);
    expect(await namesIn(cloud, service)).toEqual(['kept', 'later']);
    expect(await verificationOf(cloud, now)).toMatchObject({ status: 'succeeded' });
  },
);

test('a version that cannot be had is refused with the reason', async () => {
  const ask = (pg_version: unknown, more: object = {}) =>
    cloud.request('POST', '/services', {
      name: 'cannot',
      service_type: 'POSTGRES',
      pg_version,
      ...more,
    });
  const missing = { code: 'UNAVAILABLE_HERE', message: expect.stringContaining('postgresql-99') };
  expect(await ask('99')).toMatchObject({ status: 422, body: missing });
  const vector = expect.stringContaining(`vector for PostgreSQL ${MAJOR} is needed`);
  expect(await ask(MAJOR, { service_type: 'VECTOR' })).toMatchObject({
    status: 422,
    body: { message: vector },
  });
  for (const wrong of ['15', '16.4', '', 17, 'newest', null])
    expect(await ask(wrong)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining('pg_version') },
    });
  const usual = await create('parent');
  expect(
    await call(usual, 'forkService', { fork_strategy: 'NOW', pg_version: MAJOR }),
  ).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('a fork has the version of its parent') },
  });
});

test('an import into an older version is refused', async () => {
  const [newer, older] = [await create('newer'), await create('target', { pg_version: MAJOR })];
  // No dump is made: a program that only says its version is enough.
  const programs = join(cloud.home, 'programs');
  await mkdir(programs);
  await writeFile(join(programs, 'pg_dump'), '#!/bin/sh\necho pg_dump 99.0\n', { mode: 0o755 });
  const { host, port } = newer.endpoint;
  const url = `postgres://tsdbadmin:${newer.initial_password}@${host}:${port}/tsdb?sslmode=require`;
  const { PATH = '' } = cloud.env;
  Object.assign(cloud.env, {
    PATH: `${programs}:${PATH}`,
    PGPASSWORD: older.initial_password,
  });
  const refused = await cloud.cli('import', url, '--into', older.service_id);
  cloud.env['PATH'] = PATH;
  delete cloud.env['PGPASSWORD'];
  expect(refused.code, refused.stderr).toBe(5);
  expect(refused.stderr).toContain(
    `the source runs PostgreSQL ${await majorOf(newer)}, the service ${MAJOR}: a service needs`,
  );
});

test('a service whose PostgreSQL was removed runs on, and says what brings it back', async () => {
  const running = await create('running', { pg_version: MAJOR });
  const paused = await create('paused', { pg_version: MAJOR });
  await insert(cloud, paused, 'kept');
  await change(paused, 'stop');
  await rename(installed, join(cloud.home, 'elsewhere'));

  const missing = expect.stringContaining(`apt-get install postgresql-${MAJOR}`);
  await expect
    .poll(async () => (await cloud.get(running.service_id)).warnings, { timeout: 60_000 })
    .toContainEqual({ code: 'NOT_INSTALLED', message: missing });
  expect(await namesIn(cloud, running)).toEqual([]);
  expect(await call(paused, 'start')).toMatchObject({ status: 202 });
  expect(await call(running, 'resize', { cpu_millis: 1000 })).toMatchObject({ status: 202 });
  for (const { service_id: id } of [paused, running]) {
    await cloud.until(id, 'UNSTABLE');
    const [operation] = await cloud.operations(id);
    expect(operation?.error).toContain(`PostgreSQL ${MAJOR} is needed; found`);
    expect(operation?.error).toContain(`apt-get install postgresql-${MAJOR}`);
  }
  // Its server was not stopped for a size that it could not have started with.
  expect(await majorOf(running)).toBe(MAJOR);

  await cloud.stop('SIGTERM');
  await rename(join(cloud.home, 'elsewhere'), installed);
  await cloud.up();
  for (const { service_id: id } of [paused, running]) await cloud.until(id, 'READY');
  expect(await namesIn(cloud, paused)).toEqual(['kept']);
});
