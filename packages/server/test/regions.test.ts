/**
 * Two local regions and the simulated one in one control plane, side by side; then one of the local
 * regions is off.
 */
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { claimPorts, connectTo, install, makeHome, PORTS, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { findServer, findSite } from './probe.ts';
import { until, untilExpected } from './until.ts';

type Created = Service & { initial_password: string };

const NVME = 'nvme';
let cloud: Installation;
let top: string;
let directory: string;
let portRange: [number, number];
let regions: string;
/** A service in each region. */
let here: Created;
let there: Created;

beforeAll(async () => {
  top = await makeHome();
  directory = join(top, 'howdah');
  const port = await claimPorts();
  portRange = [port, port + PORTS - 1];
  regions = `${NVME}=${directory}:${portRange.join('-')}`;
  cloud = await install({ HOWDAH_REGIONS: regions, HOWDAH_SIMULATED_REGION: 'yes' });
  here = await cloud.create({ name: 'here', service_type: 'POSTGRES' });
  there = await cloud.create({ name: 'there', service_type: 'POSTGRES', region_code: NVME });
});
afterAll(async () => {
  try {
    expect(await cloud?.destroy()).toEqual([]);
  } finally {
    await rm(top, { recursive: true, force: true });
  }
});

/** Whether the directory of a service is in a region. */
const isBelow = async (home: string, { service_id: id }: Service): Promise<boolean> =>
  existsSync((await findSite(home))?.layout.service(id).marker ?? '');

const ask = (method: string, { service_id: id }: Service, path = '', body?: unknown) =>
  cloud.request(method, `/services/${id}${path}`, body);

const kindsOf = async ({ service_id: id }: Service): Promise<string[]> =>
  (await cloud.operations(id)).map(({ kind }) => kind);

/** Kills the server of a service in the second region. */
async function kill({ service_id: id }: Service): Promise<void> {
  const site = await findSite(directory);
  const paths = site?.layout.service(id);
  const server = paths === undefined ? null : await findServer(paths);
  if (paths === undefined || server === null)
    throw new Error(`service ${id} has no server in ${directory}`);
  process.kill(server.postmaster.pid, 'SIGKILL');
  await until('the server is gone', async () => (await findServer(paths)) === null);
}

const accepted = async (answer: Promise<Answer>): Promise<void> => {
  const { status, body } = await answer;
  expect(status, JSON.stringify(body)).toBe(202);
};

/** The answer to one statement in a session of the service's owner. */
const select = async (service: Created, statement: string): Promise<unknown> => {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    return (await client.query({ text: statement, rowMode: 'array' })).rows[0]?.[0];
  } finally {
    await client.end();
  }
};

test('each region is listed, and its services have their ports and files in it', async () => {
  expect((await cloud.request('GET', '/regions')).body).toMatchObject([
    { code: 'local', engine: 'local' },
    { code: NVME, engine: 'local' },
    { code: 'simulated', engine: 'model' },
  ]);
  expect([here.region_code, there.region_code]).toEqual(['local', NVME]);
  expect(there.endpoint.port).toBeGreaterThanOrEqual(portRange[0]);
  expect(there.endpoint.port).toBeLessThanOrEqual(portRange[1]);
  expect(here.endpoint.port).toBeGreaterThan(cloud.port);
  expect(here.endpoint.port).toBeLessThan(cloud.port + PORTS);
  for (const service of [here, there])
    expect([await isBelow(cloud.home, service), await isBelow(directory, service)]).toEqual(
      service === here ? [true, false] : [false, true],
    );
  const listed = await cloud.cli('region', 'list');
  expect(listed.stdout).toContain(NVME);
});

test('an unknown region is refused, and the answer names those that exist', async () => {
  for (const [path, body] of [
    ['/services', { name: 'x' }],
    ['/vpcs', { name: 'x', cidr: '10.9.0.0/24' }],
  ] as const) {
    const answer = await cloud.request('POST', path, { ...body, region_code: 'mars' });
    expect(answer).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
    expect(JSON.stringify(answer.body)).toContain(
      `allowed: local, ${NVME}, simulated and their aliases`,
    );
  }
  const { code, stderr } = await cloud.cli('service', 'create', '--name', 'x', '--region', 'mars');
  expect(code).not.toBe(0);
  expect(stderr).toContain(`allowed: local, ${NVME}, simulated`);
});

test('a service in each region is stopped, started, resized and read', async () => {
  const { body } = await cloud.request('POST', '/services', {
    name: 'nowhere',
    region_code: 'simulated',
  });
  const nowhere = await cloud.until(String(Object(body).service_id), 'READY');
  for (const { service_id: id, region_code } of [here, there, nowhere])
    expect((await cloud.get(id)).region_code).toBe(region_code);
  for (const service of [here, there, nowhere]) {
    const { service_id: id } = service;
    await accepted(ask('POST', service, '/stop'));
    await cloud.until(id, 'PAUSED');
    await accepted(ask('POST', service, '/start'));
    await cloud.until(id, 'READY');
    await accepted(ask('POST', service, '/resize', { cpu_millis: '1000', memory_gbs: '4' }));
    await cloud.until(id, 'READY');
    for (const path of ['/logs', '/members', '/backups'])
      expect((await ask('GET', service, path)).status, path).toBe(200);
    const planned = await ask('POST', service, '/stop?dry_run=true');
    expect(planned).toMatchObject({ status: 200, body: { dry_run: true } });
  }
  for (const service of [here, there]) {
    expect(await select(service, "select current_setting('shared_buffers')")).toBe('1GB');
    expect(await ask('POST', service, '/query', { sql: 'select 1' })).toMatchObject({
      status: 200,
    });
  }
  expect(await ask('POST', nowhere, '/query', { sql: 'select 1' })).toMatchObject({ status: 422 });
});

test('a fork is in the region of its parent', async () => {
  await select(there, 'create table kept as select 42 as n');
  const { body } = await ask('POST', there, '/forkService', { fork_strategy: 'NOW' });
  const { service_id: id, initial_password: password } = Object(body);
  const fork: Created = { ...(await cloud.until(String(id), 'READY')), initial_password: password };
  expect(fork.region_code).toBe(NVME);
  expect(await isBelow(directory, fork)).toBe(true);
  expect(await select(fork, 'select n from kept')).toBe(42);
  await accepted(cloud.request('DELETE', `/services/${fork.service_id}?purge=true&confirm=x`));
});

test('a VPC of one region takes no service of another one', async () => {
  const vpc = async (region_code: string): Promise<string> => {
    const body = { name: region_code, cidr: '10.77.0.0/24', region_code };
    const answer = await cloud.request('POST', '/vpcs', body);
    expect(answer, JSON.stringify(answer.body)).toMatchObject({
      status: 201,
      body: { region_code },
    });
    return String(Object(answer.body).id);
  };
  const [near, far] = [await vpc('local'), await vpc(NVME)];
  const refused = await ask('POST', there, '/attachToVPC', { vpc_id: near });
  expect(refused).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
  expect(JSON.stringify(refused.body)).toContain(`is in local, the service in ${NVME}`);
  await accepted(ask('POST', there, '/attachToVPC', { vpc_id: far }));
  await cloud.until(there.service_id, 'READY');
  await accepted(ask('POST', there, '/detachFromVPC', { vpc_id: far }));
  await cloud.until(there.service_id, 'READY');
  for (const id of [near, far])
    expect((await cloud.request('DELETE', `/vpcs/${id}`)).status).toBe(204);
});

test('the databases of a region that is switched off go on, until it is there again', async () => {
  const { service_id: id } = there;
  const dead = await cloud.create({ name: 'dead', service_type: 'POSTGRES', region_code: NVME });
  await cloud.stop('SIGTERM');
  delete cloud.env['HOWDAH_REGIONS'];
  await cloud.up();
  expect(await cloud.audit()).toEqual([]);
  await cloud.stop('SIGKILL');
  await kill(dead);
  await cloud.up();
  expect((await cloud.request('GET', '/regions')).body).toMatchObject([
    { code: 'local' },
    { code: 'simulated' },
  ]);
  expect(await cloud.get(id)).toMatchObject({ status: 'READY', region_code: NVME });
  expect(await select(there, 'select n from kept')).toBe(42);
  for (const [method, path, body] of [
    ['GET', '/logs'],
    ['GET', '/members'],
    ['GET', '/backups'],
    ['POST', '/query', { sql: 'select 1' }],
    ['POST', '/stop'],
    ['POST', '/resize', { cpu_millis: '500', memory_gbs: '2' }],
    ['POST', '/forkService', { fork_strategy: 'NOW' }],
    ['POST', '/updatePassword', { password: 'a-new-password-1' }],
    ['POST', '/backups/verify'],
    ['DELETE', ''],
  ] as const) {
    const answer = await ask(method, there, path, body);
    expect(answer, `${method} ${path}`).toMatchObject({
      status: 503,
      body: { code: 'UNAVAILABLE' },
    });
    expect(JSON.stringify(answer.body)).toContain(`the region ${NVME} is switched off`);
  }
  expect(await cloud.request('GET', '/services')).toMatchObject({ status: 200 });
  const metrics = await fetch(new URL('/metrics', cloud.apiUrl));
  expect(metrics.status).not.toBe(500);
  // A start records what died before it answers, but nothing of a region that it does not serve.
  expect(await cloud.get(dead.service_id)).toMatchObject({ status: 'READY' });
  expect((await kindsOf(dead)).includes('repair')).toBe(false);

  await cloud.stop('SIGTERM');
  cloud.env['HOWDAH_REGIONS'] = regions;
  await cloud.up();
  await untilExpected('a repair of the dead service begins', async () =>
    expect(await kindsOf(dead)).toContain('repair'),
  );
  await cloud.until(dead.service_id, 'READY');
  expect((await ask('GET', there, '/logs')).status).toBe(200);
  await accepted(ask('POST', there, '/stop'));
  await cloud.until(id, 'PAUSED');
  await accepted(ask('POST', there, '/start'));
  await cloud.until(id, 'READY');
  expect(await select(there, 'select n from kept')).toBe(42);
  expect(await cloud.audit()).toEqual([]);
});

test('howdah down --databases stops the databases of each region', async () => {
  await cloud.stop('SIGTERM');
  const { code, stdout } = await cloud.cli('down', '--databases');
  expect(code, stdout).toBe(0);
  for (const { service_id: id } of [here, there]) expect(stdout).toContain(`stopped ${id}`);
  await expect(select(there, 'select 1')).rejects.toThrow(/ECONNREFUSED/);
  await cloud.up();
  for (const { service_id: id } of [here, there]) await cloud.until(id, 'READY');
});

test('a region without its disk stops the start, and its services are not made again', async () => {
  await cloud.stop('SIGTERM');
  cloud.env['HOWDAH_REGIONS'] = regions.replace(directory, join(top, 'elsewhere'));
  await expect(cloud.up()).rejects.toThrow(
    /does not hold the data of its services: mount its disk/,
  );
  cloud.env['HOWDAH_REGIONS'] = regions;
  await cloud.up();
  expect(await cloud.get(there.service_id)).toMatchObject({ status: 'READY' });
});
