/** Faults of a database: it dies, it hangs, something is in its way. */
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, preload } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import { cloud, pathsOf, postmasterOf, succeeded, setUp, tearDown } from './faults-cloud.ts';
import { childrenOf, createLayout, findProcess, signal } from './probe.ts';
import { until } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

/** Waits until the running operation has an error. */
async function reasonOf(service: Pick<Service, 'service_id'>): Promise<string> {
  return until('the running operation has an error', async () => {
    const [newest] = await cloud.operations(service.service_id);
    return newest?.error;
  });
}

describe('a database that dies', () => {
  test('is started again with all committed data; the repair is an operation', async () => {
    const service = await cloud.create({ name: 'dies', service_type: 'POSTGRES' });
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table t (n int); insert into t values (1)');
    signal(await postmasterOf(service), 'SIGKILL');
    const repair = await succeeded(service, 'repair');
    expect(repair.requested_by).toBe('howdah');
    expect(repair.steps.find(({ name }) => name === 'start PostgreSQL')?.detail).toContain(
      'it had ended without being shut down',
    );
    await cloud.until(service.service_id, 'READY');
    const again = await connectTo(cloud, service, service.initial_password);
    expect((await again.query('select n from t')).rows).toEqual([{ n: 1 }]);
    await again.end();
  });

  test('leaves no backend behind, also not a busy one', async () => {
    const service = await cloud.create({ name: 'busy', service_type: 'POSTGRES' });
    const client = await connectTo(cloud, service, service.initial_password);
    const busy = client
      .query('do $$ begin loop perform 1; end loop; end $$')
      .catch((error: unknown) => error);
    const postmaster = await postmasterOf(service);
    const backends = await childrenOf(postmaster);
    expect(backends.length).toBeGreaterThan(3);
    signal(postmaster, 'SIGKILL');
    await succeeded(service, 'repair');
    expect(await busy).toBeInstanceOf(Error);
    // The pids of backends may be reused by the next server; none of the old processes is a backend
    // of it by its parent.
    const left = (await Promise.all(backends.map(findProcess))).filter(
      (found) => found?.parentPid === postmaster,
    );
    expect(left).toEqual([]);
  });

  test('is UNSTABLE with the reason in the operation while it cannot start', async () => {
    const service = await cloud.create({ name: 'damaged', service_type: 'POSTGRES' });
    const { data } = pathsOf(service);
    await rename(join(data, 'PG_VERSION'), join(data, 'PG_VERSION.away'));
    signal(await postmasterOf(service), 'SIGKILL');
    await cloud.until(service.service_id, 'UNSTABLE');
    expect(await reasonOf(service)).toMatch(/start PostgreSQL: .*(PG_VERSION|data directory)/);
    await rename(join(data, 'PG_VERSION.away'), join(data, 'PG_VERSION'));
    await cloud.until(service.service_id, 'READY');
  });
});

test('a death that is not reported is found in the next round', async () => {
  const deaf = await install({
    PLANT: 'deaf',
    ...preload('planted.mjs'),
    ...hurried(),
  });
  const service = await deaf.create({ name: 'unheard', service_type: 'POSTGRES' });
  signal(await postmasterOf(service, deaf), 'SIGKILL');
  await succeeded(service, 'repair', deaf);
  await (await connectTo(deaf, service, service.initial_password)).end();
  expect(await deaf.destroy()).toEqual([]);
});

// Each waits for a heartbeat that does not come: all of them at the same time.
describe.concurrent('a database that hangs', () => {
  const WAYS: [string, string[], (pid: number) => Promise<number[]>][] = [
    ['wholly', ['slow'], async (pid) => [pid, ...(await childrenOf(pid))]],
    ['in its first process only, so that no new session can begin', [], async (pid) => [pid]],
  ];
  for (const [way, tags, victims] of WAYS)
    test(`${way}: is noticed, ended and started again`, { tags }, async () => {
      const service = await cloud.create({ name: 'hangs', service_type: 'POSTGRES' });
      const pids = await victims(await postmasterOf(service));
      for (const pid of pids) signal(pid, 'SIGSTOP');
      await cloud.until(service.service_id, 'UNSTABLE');
      const repair = await succeeded(service, 'repair');
      expect(repair.steps.find(({ name }) => name === 'stop PostgreSQL')?.detail).toMatch(
        /had not answered/,
      );
      await cloud.until(service.service_id, 'READY');
      await (await connectTo(cloud, service, service.initial_password)).end();
    });

  test('keeps its sessions if it continues by itself', async () => {
    const service = await cloud.create({ name: 'stumbles', service_type: 'POSTGRES' });
    const client = await connectTo(cloud, service, service.initial_password);
    const postmaster = await postmasterOf(service);
    const pids = [postmaster, ...(await childrenOf(postmaster))];
    for (const pid of pids) signal(pid, 'SIGSTOP');
    await cloud.until(service.service_id, 'UNSTABLE');
    for (const pid of pids) signal(pid, 'SIGCONT');
    await cloud.until(service.service_id, 'READY');
    expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
    expect(await postmasterOf(service)).toBe(postmaster);
    await client.end();
  });
});

describe('an obstacle', () => {
  test('a port that another program took is reported, free again it is used', async () => {
    const service = await cloud.create({ name: 'port', service_type: 'POSTGRES' });
    await cloud.request('POST', `/services/${service.service_id}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    const squatter = await listenOn(service.endpoint.port);
    await cloud.request('POST', `/services/${service.service_id}/start`);
    await cloud.until(service.service_id, 'UNSTABLE');
    expect(await reasonOf(service)).toContain(
      `port ${service.endpoint.port} of 127.0.0.1 is held by another program`,
    );
    squatter.close();
    await cloud.until(service.service_id, 'READY');
  });

  test('a port that another program holds is not reserved for a new service', async () => {
    const first = await cloud.create({ name: 'before', service_type: 'POSTGRES' });
    const squatter = await listenOn(first.endpoint.port + 1);
    const second = await cloud.create({ name: 'after', service_type: 'POSTGRES' });
    expect(second.endpoint.port).toBe(first.endpoint.port + 2);
    squatter.close();
  });

  test("another server's key beside a certificate, as a crash leaves it", async () => {
    const [service, other] = await Promise.all(
      ['incomplete', 'whole'].map((name) => cloud.create({ name, service_type: 'POSTGRES' })),
    );
    if (service === undefined || other === undefined) throw new Error('two services');
    await cloud.request('POST', `/services/${service.service_id}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    await writeFile(
      join(pathsOf(service).config, 'server.key'),
      await readFile(join(pathsOf(other).config, 'server.key')),
    );
    await cloud.request('POST', `/services/${service.service_id}/start`);
    await cloud.until(service.service_id, 'READY');
    await (await connectTo(cloud, service, service.initial_password)).end();
  });

  test('a directory without our marker is not touched', async () => {
    const service = await cloud.create({ name: 'foreign', service_type: 'POSTGRES' });
    await cloud.request('POST', `/services/${service.service_id}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    const { root } = pathsOf(service);
    await rename(root, `${cloud.home}/aside`);
    await mkdir(root);
    await writeFile(join(root, 'somebody-elses'), 'precious');
    await cloud.request('POST', `/services/${service.service_id}/start`);
    await cloud.until(service.service_id, 'UNSTABLE');
    expect(await reasonOf(service)).toMatch(/was not made by Howdah; move it/);
    expect(await readFile(join(root, 'somebody-elses'), 'utf8')).toBe('precious');
    await rm(root, { recursive: true });
    await rename(`${cloud.home}/aside`, root);
    await cloud.until(service.service_id, 'READY');
  });
});

test('the integrity check finds a service whose directory was removed by hand', async () => {
  const { service_id: id } = await cloud.create({ name: 'misplaced', service_type: 'POSTGRES' });
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  const { root } = createLayout(join(cloud.home, 'data')).service(id);
  const elsewhere = join(cloud.home, 'elsewhere');
  await rename(root, elsewhere);
  expect(await cloud.audit()).toContain(`service ${id} has no directory`);
  await rename(elsewhere, root);
  expect(await cloud.audit()).toEqual([]);
});

async function listenOn(port: number): Promise<Server> {
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
