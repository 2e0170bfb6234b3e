/** Services whose data is lost: they are never made again without it. */
import { existsSync } from 'node:fs';
import { readdir, readlink, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Service } from './harness-caller.ts';
import { connectTo, install, type Installation } from './harness.ts';
import { createLayout, findProgram, type Layout } from './probe.ts';
import { hurried } from './tuning.ts';
import { until, untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install(hurried());
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

/** Where the services are. */
async function findLayout(): Promise<Layout> {
  const data = join(cloud.home, 'data');
  return createLayout(await readlink(data).catch(() => data));
}

/** Ends everything, loses something, and starts the control plane. */
async function meanwhile(lose: () => Promise<void>): Promise<void> {
  await cloud.stop('SIGKILL');
  expect((await cloud.cli('down', '--databases')).code).toBe(0);
  await lose();
  await cloud.up();
}

/** Waits until the operation of a service says why it does not go on. */
async function untilRefused(id: string, why: string): Promise<void> {
  const said = async () =>
    (await cloud.operations(id)).find(({ finished }) => finished === null)?.error ?? '';
  await untilExpected(`the operation says ${why}`, async () => expect(await said()).toContain(why));
  expect((await cloud.get(id)).status).toBe('UNSTABLE');
}

/** Connects to a service that is about to accept connections. */
const connectSoon = (service: Service & { initial_password: string }): Promise<Client> =>
  until('the service accepts connections', () =>
    connectTo(cloud, service, service.initial_password),
  );

test('a service without its directory or its data waits until they are back', async () => {
  const create = async (name: string) => {
    const service = await cloud.create({ name, service_type: 'POSTGRES' });
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table kept as select 42 as answer');
    await client.end();
    return service;
  };
  const layout = await findLayout();
  const [one, two] = [await create('without a directory'), await create('without data')];
  const lost = [
    { service: one, path: layout.service(one.service_id).root },
    { service: two, path: layout.service(two.service_id).data },
  ];
  await meanwhile(async () => {
    for (const { path } of lost) await rename(path, `${path}.away`);
  });
  for (const { service, path } of lost) {
    const { service_id: id } = service;
    await untilRefused(id, 'its data is missing');
    // A start that is asked for makes no other data either.
    expect((await cloud.request('POST', `/services/${id}/start`)).status).toBe(202);
    await untilRefused(id, 'its data is missing');
    expect(existsSync(path)).toBe(false);
    await rename(`${path}.away`, path);
    expect((await cloud.request('POST', `/services/${id}/start`)).status).toBe(202);
    const again = await connectSoon(service);
    expect((await again.query('table kept')).rows).toEqual([{ answer: 42 }]);
    await again.end();
  }
});

test('recover brings back every commit if the WAL is left, and keeps the old data', async () => {
  const service = await cloud.create({ name: 'damaged', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  const client = await connectTo(cloud, service, service.initial_password);
  await client.query('create table kept as select generate_series(1, 1000) as n');
  await client.end();
  await cloud.request('POST', `/services/${id}/setEnvironment`, { environment: 'PROD' });
  expect(await cloud.cli('service', 'recover', 'damaged')).toMatchObject({ code: 5 });
  const layout = await findLayout();
  const { data } = layout.service(id);
  await meanwhile(() => rm(join(data, 'global'), { recursive: true }));
  await untilRefused(id, `howdah service recover ${id}`);

  const unnamed = await cloud.cli('service', 'recover', 'damaged');
  expect(unnamed.stderr).toContain('so a PROD service needs its name');
  const plan = await cloud.cli('service', 'recover', 'damaged', '--dry-run');
  expect(plan.stdout).toContain('its newest backup in this machine comes back');
  expect(plan.stdout).toMatch(/set data aside\n +restore data/);
  const recovered = await cloud.cli('service', 'recover', 'damaged', '--confirm', 'damaged');
  expect(recovered).toMatchObject({ code: 0 });
  const again = await connectTo(cloud, service, service.initial_password);
  const { rows } = await again.query('select count(*)::int as count from kept');
  expect(rows).toEqual([{ count: 1000 }]);
  await again.query('insert into kept values (1001)');
  await again.end();
  const [restore = ''] = await readdir(layout.aside(id));
  expect(await readdir(join(layout.aside(id), restore, '0'))).toContain('pg_wal');
  const audit = await cloud.cli('audit');
  expect(audit.stderr).toContain(`set aside: ${join(layout.aside(id), restore)} has the data`);
  // Data set aside contradicts nothing.
  expect(audit.stdout).not.toContain(id);

  // Another restart restores nothing.
  await meanwhile(async () => undefined);
  const later = await connectSoon(service);
  expect((await later.query('select max(n) as max from kept')).rows).toEqual([{ max: 1001 }]);
  await later.end();
});

test.runIf((await findProgram('haproxy')) !== null)(
  'a service with replicas that has lost the data of all members is restored with them',
  { tags: 'slow' },
  async () => {
    const service = await cloud.create({
      name: 'pair',
      service_type: 'POSTGRES',
      replica_count: 1,
    });
    const { service_id: id } = service;
    expect((await cloud.request('POST', `/services/${id}/switchover`)).status).toBe(202);
    await cloud.until(id, 'READY');
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table kept as select 42 as answer');
    await client.end();
    const layout = await findLayout();
    await meanwhile(async () => {
      for (const n of [0, 1])
        await rm(join(layout.member(id, n).data, 'global'), { recursive: true });
    });
    await untilRefused(id, `howdah service recover ${id}`);
    expect(await cloud.cli('service', 'recover', 'pair')).toMatchObject({ code: 0 });
    const again = await connectTo(cloud, service, service.initial_password);
    expect((await again.query('table kept')).rows).toEqual([{ answer: 42 }]);
    await again.end();
  },
);
