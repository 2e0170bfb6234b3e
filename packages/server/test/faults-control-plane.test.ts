/**
 * Faults of the control plane: it dies, its metadata database dies, the disk is full, much happens
 * at the same time.
 */
import { randomBytes } from 'node:crypto';
import { readdir, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { randomFrom } from './crash-points.ts';
import { connectTo, install, makeHome } from './harness.ts';
import { cloud, postmasterOf, succeeded, setUp, tearDown } from './faults-cloud.ts';
import { createLayout, findServer, run, runningServers, signal } from './probe.ts';
import { atMoment, until, untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

/** Kills the control plane some moments after a change of one of its services, again and again. */
async function killAtAnyMoment(rounds: number): Promise<void> {
  const seed = Number(process.env['SEED'] ?? randomBytes(4).readUInt32LE());
  const random = randomFrom(seed);
  const accepted = new Map<string, string>();
  for (let round = 0; round < rounds; round++) {
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
    await atMoment(random() * 300);
    await cloud.stop('SIGKILL');
    await cloud.up();
  }
  await untilExpected(`no operation is under way (seed ${seed})`, async () =>
    expect((await cloud.operations()).filter(({ finished }) => finished === null)).toEqual([]),
  );
  expect(await cloud.audit(), `seed ${seed}`).toEqual([]);
  for (const [id, password] of accepted) {
    const service = await cloud.get(id);
    expect(['READY', 'PAUSED'], `seed ${seed}`).toContain(service.status);
    if (service.status === 'READY') await (await connectTo(cloud, service, password)).end();
    await cloud.request('DELETE', `/services/${id}`);
  }
}

describe('a control plane that dies', () => {
  test('ends no session, and the next control plane adopts the same servers', async () => {
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
    await untilExpected('the integrity check finds nothing', async () =>
      expect(await cloud.audit()).toEqual([]),
    );
    expect((await cloud.operations(service.service_id)).map(({ kind }) => kind)).toEqual([
      'create',
    ]);
    expect((await cloud.get(service.service_id)).status).toBe('READY');
    expect(await postmasterOf(service)).toBe(postmaster);
    expect((await client.query('select count(*)::int as n from of_this_session')).rows).toEqual([
      { n: 0 },
    ]);
    // This control plane is in charge: a death is noticed although the server is no child of it.
    signal(postmaster, 'SIGKILL');
    await succeeded(service, 'repair');
    await client.end().catch(() => undefined);
  });

  test('with all servers, as in a reboot: running services run, paused ones stay', async () => {
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

  test('at any moment of an operation: every accepted request is done or goes on', () =>
    killAtAnyMoment(1));

  test(
    'at any moment of many operations: every accepted request is done or goes on',
    { tags: 'slow' },
    () => killAtAnyMoment(12),
  );
});

describe('the metadata database', () => {
  test('is started again after it died; the API answers 503 meanwhile', async () => {
    const { store } = createLayout(join(cloud.home, 'data'));
    const server = await findServer(store);
    signal(server?.postmaster.pid ?? 0, 'SIGKILL');
    await untilExpected('the API answers again', async () =>
      expect((await cloud.request('GET', '/services')).status).toBe(200),
    );
    // A connection that broke and was not used since may still be handed out once: said as such,
    // and worth another try.
    const { status, body } = await until('a create is not answered with 503', async () => {
      const answer = await cloud.request('POST', '/services', {
        name: 'afterwards',
        service_type: 'POSTGRES',
      });
      return answer.status === 503 ? null : answer;
    });
    expect(status, JSON.stringify(body)).toBe(202);
    await cloud.until(idAndPassword(body)[0], 'READY');
  });
});

// A file system of its own is what can be filled without harm, and it takes root to mount one.
describe.runIf(process.getuid?.() === 0)('a full disk', () => {
  test('is reported with figures, leaves nothing incomplete, continues with room', async () => {
    const disk = await makeHome();
    await run('mount', ['-t', 'tmpfs', '-o', 'size=1g,mode=0755', 'howdah-test', disk]);
    const full = await install({ HOWDAH_HOME: join(disk, 'home') });
    try {
      const first = await full.create({ name: 'has room', service_type: 'POSTGRES' });
      const client = await connectTo(full, first, first.initial_password);
      // Precloned templates would take from the room that is counted.
      const { data: regions } = await full.client.GET('/projects/{project_id}/regions', {
        params: { path: { project_id: full.projectId } },
      });
      const types = regions?.[0]?.service_types.filter(({ available }) => available).length;
      const templates = () => readdir(join(full.home, 'data', 'templates'));
      await untilExpected('each type has a precloned template', async () =>
        expect(
          (await templates()).filter((name) => !name.endsWith('.new') && !name.startsWith('.'))
            .length,
        ).toBe(types),
      );
      // At 95 % nothing is made any more: the fork needs more than the rest of the disk before
      // that.
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
        new RegExp(
          'clone parent: no space left on the disk of the services: ' +
            String.raw`\d+ MB free, \d+ MB needed; delete services or make space on it`,
        ),
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

/** Creates services at once, and deletes some of them before they are provisioned. */
async function createAtOnce(count: number, deleted: number): Promise<void> {
  const answers = await Promise.all(
    Array.from({ length: count }, (_, n) =>
      cloud.request('POST', '/services', { name: `at once ${n}`, service_type: 'POSTGRES' }),
    ),
  );
  const ids = answers.map(({ body }) => idAndPassword(body)[0]);
  const doomed = ids.slice(0, deleted);
  const deletes = await Promise.all(
    doomed.flatMap((id) => [
      cloud.request('DELETE', `/services/${id}`),
      cloud.request('DELETE', `/services/${id}`),
    ]),
  );
  for (const { status } of deletes) expect([202, 404]).toContain(status);
  const services = await Promise.all(ids.slice(deleted).map((id) => cloud.until(id, 'READY')));
  expect(new Set(services.map(({ endpoint }) => endpoint.port)).size).toBe(services.length);
  for (const id of doomed) {
    await untilExpected(`service ${id} is deleted`, async () =>
      expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404),
    );
    const create = (await cloud.operations(id)).find(({ kind }) => kind === 'create');
    expect(create).toMatchObject(
      create?.status === 'failed' ? { error: 'superseded by delete' } : { status: 'succeeded' },
    );
  }
}

describe('things at the same time', () => {
  test('four creates: all READY, each on its port; a delete supersedes a create', () =>
    createAtOnce(4, 1));

  test(
    'ten creates: all get READY, each on its own port; a delete supersedes a create under way',
    { tags: 'slow' },
    () => createAtOnce(10, 3),
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
