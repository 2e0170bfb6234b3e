/**
 * An attacker who has become the user of one service, and the others; as root. Without root there
 * is one user for all.
 */
import { execFile } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chown, lstat, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { layoutOf, untilRedundant } from './ha-load.ts';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { createLayout, findProgram, findServer, type InstancePaths, uidOf } from './probe.ts';
import { createSet, untilSet } from './sets.ts';
import { atMoment, until, untilExpected } from './until.ts';

const execute = promisify(execFile);
const haproxy = await findProgram('haproxy');
const isRoot = process.getuid?.() === 0;

let cloud: Installation;
let [first, second]: (Service & { initial_password: string })[] = [];
const serviceOf = (service: Service | undefined): Service => {
  if (service === undefined) throw new Error('the installation has not begun');
  return service;
};
const pathsOf = (service: Service | undefined): InstancePaths =>
  createLayout(join(cloud.home, 'data')).service(serviceOf(service).service_id);
const ownerOf = async (paths: InstancePaths): Promise<number> => (await lstat(paths.data)).uid;

/**
 * Runs a command as a user, in the mounts of the machine. @returns whether it succeeded, and what
 * it said
 */
async function as(
  uid: number,
  command: string,
  args: readonly string[],
): Promise<{ ok: boolean; text: string }> {
  const words = [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--', command, ...args];
  return execute('setpriv', words).then(
    ({ stdout }) => ({ ok: true, text: stdout }),
    (error: unknown) => ({ ok: false, text: String(error) }),
  );
}

describe.skipIf(!isRoot)('as root', () => {
  beforeAll(async () => {
    cloud = await install();
    [first, second] = await Promise.all(
      ['first', 'second'].map((name) => cloud.create({ name, service_type: 'POSTGRES' })),
    );
  });
  afterAll(async () => {
    expect(await cloud.destroy()).toEqual([]);
  });

  test('each service runs as a user of its own, and the region says so', async () => {
    const [one, two] = await Promise.all([ownerOf(pathsOf(first)), ownerOf(pathsOf(second))]);
    const store = await ownerOf(createLayout(join(cloud.home, 'data')).store);
    expect(new Set([one, two, store]).size).toBe(3);
    for (const uid of [one, two]) expect(uid >= 70_000 && uid <= 89_999).toBe(true);
    expect(uidOf((await findServer(pathsOf(first)))?.postmaster.pid ?? 0)).toBe(one);
    const { body } = await cloud.request('GET', '/regions');
    expect(body).toMatchObject([{ isolation: { isolated: true } }]);
    // Where the installation is noted for others of this machine.
    expect(await readlink(`/var/lib/howdah/users/${one}`)).toBe(
      await readlink(pathsOf(first).root).catch(() => pathsOf(first).root),
    );
  });

  test('the user of a service reads nothing of another, nor of the control plane', async () => {
    const uid = await ownerOf(pathsOf(first));
    const { store, templates } = createLayout(join(cloud.home, 'data'));
    const other = pathsOf(second);
    const secrets = [
      other.data,
      other.config,
      other.socket,
      other.archive,
      other.snapshots,
      other.logs,
      other.root,
      join(other.data, 'PG_VERSION'),
      join(other.config, 'server.key'),
      other.startLog,
      other.marker,
      store.data,
      store.socket,
      store.config,
      templates,
      ...['credentials.json', 'secrets.key', 'control.log', 'ca/ca-key.pem', 'ca'].map((name) =>
        join(cloud.home, name),
      ),
    ];
    const read: string[] = [];
    for (const path of secrets) {
      if ((await lstat(path).catch(() => null)) === null) continue;
      const command = (await lstat(path)).isDirectory() ? 'ls' : 'cat';
      if ((await as(uid, command, [path])).ok) read.push(path);
    }
    expect(read).toEqual([]);
    // And its own it does read: the test would see it.
    expect(await as(uid, 'cat', [join(pathsOf(first).data, 'PG_VERSION')])).toMatchObject({
      ok: true,
    });
  });

  test('the user of a service signals no other process, and traces none', async () => {
    const uid = await ownerOf(pathsOf(first));
    const { store } = createLayout(join(cloud.home, 'data'));
    for (const paths of [pathsOf(second), store]) {
      const pid = String((await findServer(paths))?.postmaster.pid);
      expect(await as(uid, 'kill', ['-0', pid])).toMatchObject({ ok: false });
      expect(await as(uid, 'cat', [`/proc/${pid}/environ`])).toMatchObject({ ok: false });
      expect(await as(uid, 'ls', [`/proc/${pid}/root/`])).toMatchObject({ ok: false });
    }
    expect(await as(uid, 'kill', ['-0', String(process.pid)])).toMatchObject({ ok: false });
    const own = String((await findServer(pathsOf(first)))?.postmaster.pid);
    expect(await as(uid, 'kill', ['-0', own])).toMatchObject({ ok: true });
  });

  test('the user of a service is superuser in no database, its own among them', async () => {
    const uid = await ownerOf(pathsOf(first));
    const { store } = createLayout(join(cloud.home, 'data'));
    const login = (socket: string, port: number, user: string, database: string) =>
      as(uid, process.execPath, ['-e', LOGIN, socket, String(port), user, database]);
    const { port } = serviceOf(first).endpoint;
    for (const [socket, at] of [
      [pathsOf(first).socket, port],
      [pathsOf(second).socket, serviceOf(second).endpoint.port],
      [store.socket, 5432],
    ] as const)
      for (const role of ['howdah', 'howdah_reader'])
        for (const database of ['postgres', 'tsdb'])
          expect(
            (await login(socket, at, role, database)).text,
            `${role} in ${database}`,
          ).not.toContain('AuthenticationOk');
    // The service's own pooler does get in, where there is one; as a role that may not read tables.
    expect((await login(pathsOf(first).socket, port, 'nobody_at_all', 'tsdb')).text).not.toContain(
      'AuthenticationOk',
    );
  });

  test('a process that says it is the server of another service is not taken for it', async () => {
    const uid = await ownerOf(pathsOf(first));
    const other = pathsOf(second);
    const before = await findServer(other);
    const sleeper = execFile('setpriv', [
      `--reuid=${uid}`,
      `--regid=${uid}`,
      '--clear-groups',
      '--',
      'bash',
      '-c',
      'cd / && exec -a /x/postgres sleep 60',
    ]);
    try {
      await untilExpected('the process belongs to the user of the service', () =>
        expect(uidOf(sleeper.pid ?? 0)).toBe(uid),
      );
      expect((await findServer(other))?.postmaster.pid).toBe(before?.postmaster.pid);
      // The integrity check reports it: nothing of the service started it.
      await untilExpected('the integrity check finds the process', async () =>
        expect((await cloud.audit()).join()).toContain(`process ${sleeper.pid}`),
      );
    } finally {
      sleeper.kill('SIGKILL');
    }
    await untilExpected('the integrity check finds nothing', async () =>
      expect(await cloud.audit()).toEqual([]),
    );
  });

  test('the integrity check finds files with another owner, or open to others', async () => {
    const { data, logs } = pathsOf(first);
    const foreign = join(data, 'planted');
    await writeFile(foreign, '');
    await chown(foreign, await ownerOf(pathsOf(second)), 0);
    const open = join(logs, 'open');
    await writeFile(open, '', { mode: 0o666 });
    await execute('chmod', ['666', open]);
    const found = (await cloud.audit()).join('\n');
    expect(found).toContain('data/planted');
    expect(found).toContain('logs/open');
    await rm(foreign);
    await rm(open);
    expect(await cloud.audit()).toEqual([]);
  });

  test('a home with one user for all is migrated with one restart of each server', async () => {
    const service = serviceOf(first);
    const client = await connectTo(cloud, service, first?.initial_password ?? '');
    await client.query('create table kept (x int); insert into kept values (1)');
    await client.end();
    await cloud.stop('SIGTERM');
    await makeFormer(pathsOf(first));
    await cloud.up();
    const paths = pathsOf(first);
    await untilExpected('the server runs as a user of the new range', async () =>
      expect(uidOf((await findServer(paths))?.postmaster.pid ?? 0) ?? 0).toBeGreaterThanOrEqual(
        70_000,
      ),
    );
    await cloud.until(service.service_id, 'READY');
    const again = await connectTo(cloud, service, first?.initial_password ?? '');
    expect((await again.query('select x from kept')).rows).toEqual([{ x: 1 }]);
    await again.end();
    expect(await readFile(paths.marker, 'utf8')).toContain('"uid":');
    await untilExpected('the integrity check finds nothing', async () =>
      expect(await cloud.audit()).toEqual([]),
    );
  });

  test.skipIf(haproxy === null)(
    'so are a pair and its replica set, also while the control plane is killed often',
    { tags: 'slow' },
    async () => {
      const pair = await cloud.create({
        name: 'pair',
        service_type: 'POSTGRES',
        replica_count: 1,
        sync_replica_count: 1,
      });
      const set = await createSet(pair, 1, cloud);
      await untilRedundant(cloud, pair, 1, 1, 1);
      const client = await connectTo(cloud, pair, pair.initial_password);
      await client.query('create table kept (x int); insert into kept values (1)');
      await client.end();
      await cloud.stop('SIGTERM');
      const layout = layoutOf(cloud);
      const servers = [
        layout.member(pair.service_id, 0),
        layout.member(pair.service_id, 1),
        layout.member(set.id, 1),
      ];
      await makeFormer(...servers);
      // The progress by then differs each time and on each machine. The last start ends it each
      // time.
      for (const afterMs of [0, 100, 300, 900]) {
        await cloud.up();
        await atMoment(afterMs);
        await cloud.stop('SIGKILL');
      }
      await cloud.up();
      await untilRedundant(cloud, pair, 1, 1, 1);
      await untilSet(set, 'active', cloud);
      const uids = await Promise.all(servers.map(ownerOf));
      expect(new Set(uids).size).toBe(1);
      expect(uids[0]).toBeGreaterThanOrEqual(70_000);
      for (const [of, password] of [
        [pair, pair.initial_password],
        [set, pair.initial_password],
      ] as const) {
        const reader = await connectTo(cloud, of, password);
        expect((await reader.query('select x from kept')).rows).toEqual([{ x: 1 }]);
        await reader.end();
      }
      await untilExpected('the integrity check finds nothing', async () =>
        expect(await cloud.audit()).toEqual([]),
      );
    },
  );
});

describe.skipIf(!isRoot)('where no user is left', () => {
  let small: Installation;
  afterAll(async () => {
    expect(await small?.destroy()).toEqual([]);
  });

  test('a service waits and says why, others go on; a free user lets it begin', async () => {
    // A number that no other test uses.
    const uid = randomInt(1_800_000_000, 1_900_000_000);
    small = await install({ HOWDAH_UID_RANGE: `${uid}-${uid}`, HOWDAH_SPARES: '0' });
    const held = await small.create({ name: 'held', service_type: 'POSTGRES' });
    const { status, body, headers } = await small.request('POST', '/services', {
      name: 'waiting',
      service_type: 'POSTGRES',
    });
    expect(status).toBe(202);
    const id = String(Object(body).service_id);
    const operation = async () =>
      JSON.stringify(
        (await small.request('GET', `/operations/${headers.get('Operation-Id')}`)).body,
      );
    await untilExpected('the operation names the range of users', async () =>
      expect(await operation()).toContain('HOWDAH_UID_RANGE'),
    );
    expect((await small.get(held.service_id)).status).toBe('READY');
    expect((await small.request('DELETE', `/services/${held.service_id}?purge=true`)).status).toBe(
      202,
    );
    await small.until(id, 'READY');
  });
});

/**
 * Makes servers as those of an older release: stopped, and all of them the user's of the metadata
 * database.
 */
async function makeFormer(...servers: InstancePaths[]): Promise<void> {
  const { uid, gid } = await lstat(createLayout(join(cloud.home, 'data')).store.data);
  for (const paths of servers) {
    const server = await findServer(paths);
    if (server !== null) process.kill(server.postmaster.pid, 'SIGINT');
    await until('the server is gone', async () => (await findServer(paths)) === null);
  }
  for (const paths of servers) {
    const marker: unknown = JSON.parse(await readFile(paths.marker, 'utf8'));
    await writeFile(
      paths.marker,
      JSON.stringify({
        ...(typeof marker === 'object' ? marker : {}),
        uid: undefined,
        userOf: undefined,
      }),
    );
    await chown(paths.root, 0, gid);
    await chown(dirname(paths.marker), 0, gid);
    for (const path of [paths.data, paths.socket, paths.logs, paths.archive].filter(existsSync))
      await execute('chown', ['-hR', `${uid}:${gid}`, path]);
    for (const path of [paths.config, paths.snapshots].filter(existsSync))
      await execute('chown', ['-hR', `0:${gid}`, path]);
    for (const name of ['passwd', 'group']) await rm(join(paths.config, name), { force: true });
    // A second name of somebody else's file, and a link out of the service: neither is given away.
    await symlink('/etc/shadow', join(paths.logs, 'link'));
  }
}

/**
 * Sends a startup message over a Unix socket; says whether the server lets the role in without a
 * password.
 */
const LOGIN = `
const [socket, port, user, database] = process.argv.slice(1);
const fields = ['user', user, 'database', database, '', ''];
const text = Buffer.from(fields.join('\\0').slice(0, -1) + '\\0');
const head = Buffer.alloc(8);
head.writeInt32BE(8 + text.length, 0);
head.writeInt32BE(196608, 4);
const client = require('node:net').connect(socket + '/.s.PGSQL.' + port);
client.on('connect', () => client.write(Buffer.concat([head, text])));
client.on('data', (data) => {
  const isOk = data[0] === 0x52 && data.readInt32BE(5) === 0;
  console.log(isOk ? 'AuthenticationOk' : data.toString('latin1'));
  process.exit(0);
});
client.on('error', (error) => { console.log(error.code); process.exit(0); });
`;
