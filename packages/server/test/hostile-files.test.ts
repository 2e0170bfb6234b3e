/**
 * An attacker who has become the operating system user of a service puts links, FIFOs, directories
 * and second names of root's files into its directories. Every operation goes on or says what is in
 * the way; no file outside changes, and none is shown.
 */
import { existsSync, linkSync, mkdirSync, symlinkSync } from 'node:fs';
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, describe as anyDescribe, expect, test } from 'vitest';
import { layoutOf, untilPrimary, untilRedundant, type ServiceAccess } from './ha-load.ts';
import { install, type Installation } from './harness.ts';
import { findProgram, type InstancePaths, run } from './probe.ts';
import { during, until, untilExpected } from './until.ts';

const [haproxy, pgbouncer] = await Promise.all([findProgram('haproxy'), findProgram('pgbouncer')]);
// Without root there is no privilege to abuse.
const describe = anyDescribe.runIf(process.getuid?.() === 0);

const SECRET =
  '{"timestamp":"2026-01-01 00:00:00.000 UTC","error_severity":"LOG",' +
  '"message":"a secret of root"}\n';

let cloud: Installation;
let outside: string;
let secret: string;
let other: ServiceAccess;
let service: ServiceAccess;

beforeAll(async () => {
  cloud = await install({ HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0', HOWDAH_SNAPSHOT_HOURS: '0.005' });
  // On the file system of the data: a hard link cannot leave it.
  outside = await mkdtemp(join(tmpdir(), 'howdah-outside-'));
  secret = join(outside, 'secret');
  await writeFile(secret, SECRET, { mode: 0o600 });
  await mkdir(join(outside, 'directory'), { mode: 0o700 });
  await writeFile(join(outside, 'directory', '000000010000000000000001'), 'of root', {
    mode: 0o600,
  });
  if (process.getuid?.() !== 0) return;
  other = await cloud.create({ name: 'other', service_type: 'POSTGRES' });
  service = await cloud.create({
    name: 'hostile',
    service_type: 'POSTGRES',
    ...(pgbouncer === null ? {} : { enable_pooler: true }),
  });
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
  await rm(outside, { recursive: true });
});

/** Owners, modes and contents of all that is outside. */
async function stateOfOutside(directory = outside): Promise<unknown[]> {
  const entries = (await readdir(directory, { withFileTypes: true })).toSorted((a, b) =>
    a.name < b.name ? -1 : 1,
  );
  const { uid, gid, mode } = await stat(directory);
  const below = entries.map(async (entry) => {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return stateOfOutside(path);
    const found = await lstat(path);
    return [entry.name, found.uid, found.gid, found.mode, await readFile(path, 'utf8')];
  });
  return [basename(directory), uid, gid, mode, ...(await Promise.all(below))];
}

const KINDS: Record<string, (path: string) => unknown> = {
  'a link to a file of root': (path) => symlinkSync(secret, path),
  'a link to a missing file': (path) => symlinkSync(join(outside, 'made'), path),
  'a link to a directory of root': (path) => symlinkSync(join(outside, 'directory'), path),
  'a FIFO': (path) => run('mkfifo', ['-m', '666', path]),
  'a directory': (path) => mkdirSync(join(path, 'inside'), { recursive: true }),
  'a second name of a file of root': (path) => linkSync(secret, path),
};

const ALWAYS = ['a link to a file of root', 'a FIFO'];
const tagsOf = (kind: string): string[] => (ALWAYS.includes(kind) ? [] : ['slow']);

/**
 * The entries that the service's user can replace: files and directories in directories that are
 * its own, a few of each kind.
 */
async function replaceable({
  data,
  logs,
  archive,
  socket,
  pooler,
}: InstancePaths): Promise<string[]> {
  const { uid } = await stat(data);
  const found = [
    join(data, 'postmaster.pid'),
    join(data, 'postgresql.auto.conf'),
    join(data, 'standby.signal'),
    join(data, 'backup_label'),
  ];
  for (const directory of [
    logs,
    archive,
    socket,
    pooler.root,
    join(data, 'pg_wal', 'archive_status'),
  ]) {
    const owned = await stat(directory).catch(() => null);
    if (owned?.uid !== uid) continue;
    found.push(...(await readdir(directory)).slice(-2).map((name) => join(directory, name)));
  }
  // Nothing of ours is there yet: what writes it must not follow what waits for it.
  found.push(
    join(logs, '2026-01-01T00-00-00.json'),
    join(archive, '000000010000000000000001.new'),
    join(data, 'recovery.signal'),
  );
  return found;
}

const isOpenedByServer = ({ archive }: InstancePaths, path: string): boolean =>
  /\.(conf|pid)$/.test(path) || (dirname(path) === archive && !path.endsWith('.new'));

const isLockFile = (path: string): boolean => basename(path) === 'postmaster.pid';

/** Others are answered while something is done to the hostile service. */
async function whileOthersAreServed<T>(work: () => Promise<T>): Promise<T> {
  let done = false;
  const served = during(
    () => !done,
    async () => {
      const { status } = await cloud.request('GET', `/services/${other.service_id}`);
      expect(status).toBe(200);
    },
  );
  try {
    return await work();
  } finally {
    done = true;
    await served;
  }
}

/** Moves a file away and makes another thing there, again if its owner was faster. */
async function replaceBy(
  make: (path: string) => unknown,
  path: string,
  kept: string,
): Promise<void> {
  for (;;) {
    await rename(path, kept).catch(() => undefined);
    try {
      return void (await make(path));
    } catch (error) {
      if (!existsSync(path)) throw error;
    }
  }
}

const at = (action: string): string => `/services/${service.service_id}${action}`;

/** The changes of a service. Each is answered; the state of the directories decides how it ends. */
const CHANGES: [action: string, body?: () => unknown][] = [
  ['/forkService', () => ({ fork_strategy: 'NOW', name: 'now' })],
  ['/forkService', () => ({ fork_strategy: 'LAST_SNAPSHOT', name: 'snapshot' })],
  [
    '/forkService',
    () => ({
      fork_strategy: 'PITR',
      target_time: new Date(Date.now() - 1000).toISOString(),
      name: 'past',
    }),
  ],
  ['/backups/verify'],
  ['/disablePooler'],
  ['/enablePooler'],
  ...(haproxy === null
    ? []
    : [
        ['/replicaSets', () => ({ name: 'readers', nodes: 1, cpu_millis: 250, memory_gbs: 1 })] as [
          string,
          () => unknown,
        ],
      ]),
  ['/resize', () => ({ cpu_millis: 1000, memory_gbs: 4 })],
  ['/resize', () => ({ cpu_millis: 500, memory_gbs: 2 })],
];

/** Until it runs or stands, or the operation that was asked for says why not. */
async function untilSettled(id: string): Promise<void> {
  await until('the service is READY, PAUSED or UNSTABLE', async () =>
    ['READY', 'PAUSED', 'UNSTABLE'].includes((await cloud.get(id)).status),
  );
}

describe('in the directories of a service', () => {
  for (const [kind, make] of Object.entries(KINDS))
    test(`${kind} is neither shown nor followed`, { tags: tagsOf(kind) }, async () => {
      const paths = layoutOf(cloud).service(service.service_id);
      const before = await stateOfOutside();
      const kept = join(paths.root, 'kept');
      await mkdir(kept);
      const targets = await replaceable(paths);
      await whileOthersAreServed(async () => {
        const replace = async (of: (path: string) => boolean) => {
          for (const [index, path] of targets.entries()) {
            // A FIFO in place of a file that the server itself opens: the server would wait for it
            // until it is killed, a minute after it was asked to end.
            if (!of(path) || (kind === 'a FIFO' && isOpenedByServer(paths, path))) continue;
            await replaceBy(make, path, join(kept, String(index)));
          }
        };
        // A server whose lock file is not its own ends within a minute, of itself: that comes last.
        await replace((path) => !isLockFile(path));
        for (const get of ['/logs', '/backups', '/backupStatus', '/metrics']) {
          const { status, body } = await cloud.request('GET', at(get));
          expect(status, JSON.stringify(body)).toBeLessThan(500);
          expect(JSON.stringify(body)).not.toContain('a secret of root');
        }
        const made = [];
        for (const [action, body] of CHANGES) {
          if (action.endsWith('Pooler') && pgbouncer === null) continue;
          // The server would wait for the FIFOs as it starts again.
          if (action === '/resize' && kind === 'a FIFO') continue;
          const answer = await cloud.request('POST', at(action), body?.());
          expect(answer.status, `${action}: ${JSON.stringify(answer.body)}`).toBeLessThan(500);
          const { service_id: forkId, id: setId } = Object(answer.body);
          if (action === '/forkService' && answer.status === 202)
            made.push(`/services/${forkId}?purge=true`);
          if (action === '/replicaSets' && answer.status === 202)
            made.push(at(`/replicaSets/${setId}`));
          await untilSettled(service.service_id);
        }
        await replace(isLockFile);
        expect((await cloud.request('POST', at('/stop'))).status).toBe(202);
        await untilSettled(service.service_id);
        expect(await stateOfOutside()).toEqual(before);
        for (const [index, path] of targets.entries()) {
          if (!existsSync(join(kept, String(index))) && isOpenedByServer(paths, path)) continue;
          await rm(path, { recursive: true, force: true });
          if (!isLockFile(path))
            await rename(join(kept, String(index)), path).catch(() => undefined);
        }
        await rm(kept, { recursive: true });
        await cloud.until(service.service_id, 'PAUSED');
        expect((await cloud.request('POST', at('/start'))).status).toBe(202);
        await cloud.until(service.service_id, 'READY');
        for (const path of made) {
          const id = path.split(/[/?]/)[2] ?? '';
          if (id !== service.service_id) await untilSettled(id);
          expect((await cloud.request('DELETE', path)).status).toBe(202);
        }
        await untilExpected('the set is removed', async () =>
          expect((await cloud.get(service.service_id)).read_replica_sets).toEqual([]),
        );
      });
      expect(await stateOfOutside()).toEqual(before);
    });

  test.runIf(haproxy !== null)(
    'the name of a file that root will write leads elsewhere: a switchover does not write there',
    { tags: 'slow' },
    async () => {
      const pair = await cloud.create({
        name: 'pair',
        service_type: 'POSTGRES',
        replica_count: 1,
        sync_replica_count: 1,
      });
      await untilRedundant(cloud, pair, 1, 1);
      const before = await stateOfOutside();
      const { data } = layoutOf(cloud).member(pair.service_id, 0);
      for (const name of ['standby.signal', 'standby.signal.new'])
        symlinkSync(join(outside, 'made'), join(data, name));
      expect((await cloud.request('POST', `/services/${pair.service_id}/switchover`)).status).toBe(
        202,
      );
      await untilPrimary(cloud, pair, 1);
      await untilRedundant(cloud, pair, 1, 1);
      expect((await lstat(join(data, 'standby.signal'))).isFile()).toBe(true);
      expect(await stateOfOutside()).toEqual(before);
      expect((await cloud.request('DELETE', `/services/${pair.service_id}`)).status).toBe(202);
    },
  );
});
