/** What dies, hangs, is in the way or runs full: users are told why, nothing is lost, and it heals by itself. */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, statfs, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findServer, runningServers } from '../src/engine/local/postgres/server.ts';
import { childrenOf, findProcess, signal } from '../src/lib/processes.ts';
import { createLayout, type InstancePaths } from '../src/engine/local/host/layout.ts';
import { run } from '../src/lib/run.ts';
import { randomFrom } from './crash.ts';
import { connectTo, install, makeHome, type Installation, type Service } from './harness.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

const pathsOf = (service: Pick<Service, 'service_id'>, at = cloud): InstancePaths =>
  createLayout(join(at.home, 'data')).service(service.service_id);

async function postmasterOf(service: Pick<Service, 'service_id'>, at = cloud): Promise<number> {
  const server = await findServer(pathsOf(service, at));
  if (server === null) throw new Error(`no server of ${service.service_id}`);
  return server.postmaster.pid;
}

/** Waits until an operation of this kind has ended well, and returns it. */
async function succeeded(service: Pick<Service, 'service_id'>, kind: string, at = cloud) {
  for (;;) {
    const found = (await at.operations(service.service_id)).find(
      (operation) => operation.kind === kind && operation.status === 'succeeded',
    );
    if (found !== undefined) return found;
    await sleep(20);
  }
}

/** Waits until the operation under way says why it does not get on. */
async function reasonOf(service: Pick<Service, 'service_id'>): Promise<string> {
  for (;;) {
    const [newest] = await cloud.operations(service.service_id);
    if (newest?.error !== undefined) return newest.error;
    await sleep(20);
  }
}

describe('a database that dies', () => {
  test('is started again at once, with all that was committed, and the repair is an operation', async () => {
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

  test('leaves none of its backends behind, not even a busy one', async () => {
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
    // Their pids may be reused by the next server; none of the old processes is a backend of it by its parent.
    const left = (await Promise.all(backends.map(findProcess))).filter(
      (found) => found?.parentPid === postmaster,
    );
    expect(left).toEqual([]);
  });

  test('is UNSTABLE, with the reason in the operation, as long as it cannot start', async () => {
    const service = await cloud.create({ name: 'damaged', service_type: 'POSTGRES' });
    const { data } = pathsOf(service);
    await rename(join(data, 'global', 'pg_control'), join(data, 'global', 'pg_control.away'));
    signal(await postmasterOf(service), 'SIGKILL');
    await cloud.until(service.service_id, 'UNSTABLE');
    expect(await reasonOf(service)).toMatch(
      /start PostgreSQL: .*(pg_control|could not find the database system)/,
    );
    await rename(join(data, 'global', 'pg_control.away'), join(data, 'global', 'pg_control'));
    await cloud.until(service.service_id, 'READY');
  });
});

test('a death that nobody is told of is found all the same', async () => {
  const deaf = await install({
    PLANT: 'deaf',
    NODE_OPTIONS: `--import ${fileURLToPath(new URL('planted.mjs', import.meta.url))}`,
  });
  const service = await deaf.create({ name: 'unheard', service_type: 'POSTGRES' });
  signal(await postmasterOf(service, deaf), 'SIGKILL');
  await succeeded(service, 'repair', deaf);
  await (await connectTo(deaf, service, service.initial_password)).end();
  expect(await deaf.destroy()).toEqual([]);
});

describe('a database that hangs', () => {
  test.each([
    ['wholly', async (pid: number) => [pid, ...(await childrenOf(pid))]],
    ['in its first process only, so that no new session can begin', async (pid: number) => [pid]],
  ])('%s: is noticed, ended and started again', async (_, victims) => {
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

  test('and comes back by itself keeps its sessions', async () => {
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

describe('something in the way', () => {
  test('a port that another program took: said, and started once it is free', async () => {
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

  test('a port that another program holds is not promised to a new service', async () => {
    const first = await cloud.create({ name: 'before', service_type: 'POSTGRES' });
    const squatter = await listenOn(first.endpoint.port + 1);
    const second = await cloud.create({ name: 'after', service_type: 'POSTGRES' });
    expect(second.endpoint.port).toBe(first.endpoint.port + 2);
    squatter.close();
  });

  test("another server's key beside a certificate, as a crash between the two files leaves it: both are recreated", async () => {
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

  test('a directory that is not ours is not touched', async () => {
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

describe('a control plane that dies', () => {
  test('does not disturb a session, and is followed by one that adopts the same servers', async () => {
    const service = await cloud.create({ name: 'outlives', service_type: 'POSTGRES' });
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create temp table of_this_session (n int)');
    const postmaster = await postmasterOf(service);
    await cloud.stop('SIGKILL');
    expect((await client.query('select count(*)::int as n from of_this_session')).rows).toEqual([
      { n: 0 },
    ]);
    await cloud.up();
    // Not even for a moment is it thought to be broken.
    await expect.poll(() => cloud.audit()).toEqual([]);
    expect((await cloud.operations(service.service_id)).map(({ kind }) => kind)).toEqual([
      'create',
    ]);
    expect((await cloud.get(service.service_id)).status).toBe('READY');
    expect(await postmasterOf(service)).toBe(postmaster);
    expect((await client.query('select count(*)::int as n from of_this_session')).rows).toEqual([
      { n: 0 },
    ]);
    // It is in charge again: a death is noticed although the server is no child of this control plane.
    signal(postmaster, 'SIGKILL');
    await succeeded(service, 'repair');
    await client.end().catch(() => undefined);
  });

  test('together with everything else, as in a reboot: what ran runs again, what was paused stays so', async () => {
    const runs = await cloud.create({ name: 'ran', service_type: 'POSTGRES' });
    const paused = await cloud.create({ name: 'paused', service_type: 'POSTGRES' });
    await cloud.request('POST', `/services/${paused.service_id}/stop`);
    await cloud.until(paused.service_id, 'PAUSED');
    await cloud.stop('SIGKILL');
    const { services, store } = createLayout(join(cloud.home, 'data'));
    const directories = (await runningServers()).filter(
      (directory) => directory.startsWith(services) || directory === store.data,
    );
    expect(directories.length).toBeGreaterThan(1);
    for (const directory of directories) {
      const server = await findServer({
        ...store,
        data: directory,
        pidFile: join(directory, '..', 'pid'),
      });
      if (server !== null) signal(server.postmaster.pid, 'SIGKILL');
    }
    await cloud.up();
    await cloud.until(runs.service_id, 'READY');
    expect((await cloud.get(paused.service_id)).status).toBe('PAUSED');
    await (await connectTo(cloud, runs, runs.initial_password)).end();
  });

  test(
    'at any moment of any operation: every accepted request is done or goes on',
    { tags: 'slow' },
    async () => {
      const seed = Number(process.env['SEED'] ?? randomBytes(4).readUInt32LE());
      const random = randomFrom(seed);
      const accepted = new Map<string, string>();
      for (let round = 0; round < 12; round++) {
        const before = await Promise.all(
          [1, 2].map(async (n) =>
            cloud.request('POST', '/services', {
              name: `crash ${round}.${n}`,
              service_type: 'POSTGRES',
            }),
          ),
        );
        for (const { body } of before) accepted.set(...idAndPassword(body));
        const ids = [...accepted.keys()];
        const target = ids[Math.floor(random() * ids.length)] ?? '';
        const action = ['stop', 'start', 'resize', 'delete'][Math.floor(random() * 4)] ?? 'stop';
        const answer =
          action === 'delete'
            ? await cloud.request('DELETE', `/services/${target}`)
            : await cloud.request(
                'POST',
                `/services/${target}/${action}`,
                action === 'resize' ? { cpu_millis: round % 2 === 0 ? '1000' : '500' } : undefined,
              );
        if (action === 'delete' && answer.status === 202) accepted.delete(target);
        await sleep(random() * 300);
        await cloud.stop('SIGKILL');
        await cloud.up();
      }
      await expect
        .poll(async () => (await cloud.operations()).filter(({ finished }) => finished === null), {
          timeout: 100_000,
          message: `seed ${seed}`,
        })
        .toEqual([]);
      expect(await cloud.audit(), `seed ${seed}`).toEqual([]);
      for (const [id, password] of accepted) {
        const service = await cloud.get(id);
        expect(['READY', 'PAUSED'], `seed ${seed}`).toContain(service.status);
        if (service.status === 'READY') await (await connectTo(cloud, service, password)).end();
        await cloud.request('DELETE', `/services/${id}`);
      }
    },
  );
});

describe('the metadata database', () => {
  test('that dies is started again; the API says so meanwhile and goes on afterwards', async () => {
    const { store } = createLayout(join(cloud.home, 'data'));
    const server = await findServer(store);
    signal(server?.postmaster.pid ?? 0, 'SIGKILL');
    await expect
      .poll(async () => (await cloud.request('GET', '/services')).status, { timeout: 60_000 })
      .toBe(200);
    // A connection that broke and was not used since may still be handed out once: said as such, and worth another try.
    for (;;) {
      const { status, body } = await cloud.request('POST', '/services', {
        name: 'afterwards',
        service_type: 'POSTGRES',
      });
      if (status === 503) continue;
      expect(status, JSON.stringify(body)).toBe(202);
      await cloud.until(idAndPassword(body)[0], 'READY');
      break;
    }
  });
});

test('a service whose directory was taken away by hand is told by the audit', async () => {
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

// A file system of its own is what can be filled without harm, and it takes root to mount one.
describe.runIf(process.getuid?.() === 0)('a full disk', () => {
  test('is reported with its figures, leaves nothing incomplete, and the fork continues once there is room', async () => {
    const disk = await makeHome();
    await run('mount', ['-t', 'tmpfs', '-o', 'size=1g,mode=0755', 'howdah-test', disk]);
    const full = await install({ HOWDAH_HOME: join(disk, 'home') });
    try {
      const first = await full.create({ name: 'has room', service_type: 'POSTGRES' });
      const client = await connectTo(full, first, first.initial_password);
      // What is made ahead would take of the room that is counted.
      const { data: regions } = await full.client.GET('/projects/{project_id}/regions', {
        params: { path: { project_id: full.projectId } },
      });
      const types = regions?.[0]?.service_types.filter(({ available }) => available).length;
      const templates = () => readdir(join(full.home, 'data', 'templates'));
      await expect
        .poll(
          async () =>
            (await templates()).filter((name) => !name.endsWith('.new') && !name.startsWith('.'))
              .length,
          { timeout: 60_000 },
        )
        .toBe(types);
      // At 95 % nothing is made any more: the fork needs more than the rest of the disk before that.
      await client.query('create unlogged table large (text text)');
      await client.query('alter table large alter text set storage plain');
      await client.query(
        'insert into large select repeat(md5(n::text), 200) from generate_series(1, 20000) n',
      );
      const { bavail, bsize } = await statfs(disk);
      await writeFile(join(disk, 'filler'), Buffer.alloc(bavail * bsize - 90e6));
      const { body } = await full.request('POST', `/services/${first.service_id}/forkService`, {
        name: 'no room',
        fork_strategy: 'NOW',
      });
      const [id] = idAndPassword(body);
      await full.until(id, 'UNSTABLE');
      const [operation] = await full.operations(id);
      expect(operation?.error).toMatch(
        /clone parent: no space left in .*: \d+ MB free, \d+ MB needed; delete services or make room/,
      );
      expect(await full.audit()).toEqual([]);
      expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
      await rm(join(disk, 'filler'));
      await full.until(id, 'READY');
      await client.end();
    } finally {
      expect(await full.destroy()).toEqual([]);
      await run('umount', [disk]);
      await rm(disk, { recursive: true });
    }
  });
});

describe('things at the same time', () => {
  test(
    'ten creates, all ready, each with its own port; a delete wins over a create under way',
    { tags: 'slow' },
    async () => {
      const answers = await Promise.all(
        Array.from({ length: 10 }, (_, n) =>
          cloud.request('POST', '/services', { name: `at once ${n}`, service_type: 'POSTGRES' }),
        ),
      );
      const ids = answers.map(({ body }) => idAndPassword(body)[0]);
      const doomed = ids.slice(0, 3);
      const deletes = await Promise.all(
        doomed.flatMap((id) => [
          cloud.request('DELETE', `/services/${id}`),
          cloud.request('DELETE', `/services/${id}`),
        ]),
      );
      for (const { status } of deletes) expect([202, 404]).toContain(status);
      const services = await Promise.all(ids.slice(3).map((id) => cloud.until(id, 'READY')));
      expect(new Set(services.map(({ endpoint }) => endpoint.port)).size).toBe(services.length);
      for (const id of doomed) {
        await expect
          .poll(async () => (await cloud.request('GET', `/services/${id}`)).status, {
            timeout: 60_000,
          })
          .toBe(404);
        const create = (await cloud.operations(id)).find(({ kind }) => kind === 'create');
        expect(create).toMatchObject(
          create?.status === 'failed' ? { error: 'superseded by delete' } : { status: 'succeeded' },
        );
      }
    },
  );
});

function idAndPassword(body: unknown): [string, string] {
  if (
    typeof body === 'object' &&
    body !== null &&
    'service_id' in body &&
    'initial_password' in body
  )
    return [String(body.service_id), String(body.initial_password)];
  throw new Error(`not a created service: ${JSON.stringify(body)}`);
}

async function listenOn(port: number): Promise<Server> {
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
