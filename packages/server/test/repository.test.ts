/** Backups off the machine: a service loses its directory and comes back from a repository. */
import { randomBytes } from 'node:crypto';
import {
  lchown,
  link,
  lstat,
  mkdir,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  checkRepository,
  expire,
  fetchBackup,
  forgetStanza,
  getObject,
  type KnownService,
  listFiles,
  listObjects,
  markPassphrase,
  offMachine,
  putObject,
  removeObject,
  removeUnknownServices,
  serviceOf,
} from '../test-repositories/probe.ts';
import { startLoad } from './ha-load.ts';
import { install, type Installation } from './harness.ts';
import {
  findPgBackRest,
  isWalFile,
  nextWalFile,
  ownerOf,
  type Repository,
  RepositoryProblem,
  run,
  whyNotServed,
} from './probe.ts';
import {
  cloud,
  context,
  execute,
  killedAt,
  loseService,
  NEVER,
  newDirectory,
  pathsOf,
  place,
  recoverService,
  setUp,
  shipAll,
  switchWal,
  tearDown,
  type ServiceAccess,
} from './repository-cloud.ts';
import { untilExpected } from './until.ts';

const program = await findPgBackRest();

/** Makes a directory with a file, as pgBackRest does. */
async function makeFileIn(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'file'), '');
  const { user } = context.program;
  if (user === null) return;
  for (const path of [join(directory, '..'), directory, join(directory, 'file')])
    await lchown(path, user.uid, user.gid);
}
const isServed = whyNotServed(program, 17) === null;

/** Ships a service that is written to, loses it, and brings it back. */
async function loseAndRecover(repository: Repository): Promise<ServiceAccess> {
  const service = await cloud.create({ name: 'ledger', service_type: 'POSTGRES' });
  const load = await startLoad(cloud, service);
  const startedMs = Date.now() - performance.now();
  const some = async (count: number) =>
    untilExpected(`more than ${count} writes are acknowledged`, () =>
      expect(load.acknowledged.length).toBeGreaterThan(count),
    );
  await some(20);
  const first = await shipAll(service, repository);
  // On a slow machine a newer snapshot is stored meanwhile.
  expect(first.problem).toBe(null);
  expect(first.backups.at(-1)).toMatchObject({ type: 'full' });
  await some(100);
  await switchWal(service);
  await some(load.acknowledged.length + 20);
  const state = await shipAll(service, repository);
  expect(state).toMatchObject({ problem: null, backlog: { files: 0 } });
  const safeToMs = state.safeToMs ?? 0;
  expect(safeToMs).toBeGreaterThan(first.safeToMs ?? 0);
  await some(load.acknowledged.length + 20);
  expect(await load.stop()).toEqual([]);
  await loseService(service);
  await recoverService(service, repository);
  const rows = await execute(service, 'select n from load');
  const there = new Set(rows.map((row) => Number(Reflect.get(Object(row), 'n'))));
  const safe = load.acknowledged.filter(({ atMs }) => startedMs + atMs < safeToMs);
  expect(safe.length).toBeGreaterThan(20);
  expect(safe.filter(({ n }) => !there.has(n))).toEqual([]);
  return service;
}

describe.runIf(isServed)('a service whose disk is lost', () => {
  beforeAll(() => setUp());
  afterEach(() => cloud.tidy());
  afterAll(tearDown);

  test('comes back from a directory with every commit that was reported as safe', async () => {
    const repository = await newDirectory('lost');
    const service = await loseAndRecover(repository);
    await execute(service, 'insert into load values (-1)');
    await switchWal(service);
    // The state was lost too: what is there is found out, and not stored again.
    const state = await shipAll(service, repository);
    expect(state).toMatchObject({ problem: null, backlog: { files: 0 } });
    expect(await offMachine(context, service.service_id, repository.id)).toEqual(state);
    await expire(context, service.service_id, null, repository, 7);
    expect((await offMachine(context, service.service_id, repository.id))?.backups).toEqual(
      state.backups,
    );
    await loseService(service);
    await recoverService(service, repository);
    expect(await execute(service, 'select n from load where n = -1')).toEqual([{ n: -1 }]);
    await forgetStanza(context, service.service_id, repository);
    const { program: found } = context;
    expect(await listFiles(found, repository, 'backup')).toEqual([]);
    expect(await listFiles(found, repository, 'archive')).toEqual([]);
  });

  test(
    'is shipped and fetched though pgBackRest is killed at each command',
    { tags: 'slow' },
    async () => {
      const repository = await newDirectory('killed');
      const service = await cloud.create({ name: 'killed', service_type: 'POSTGRES' });
      await execute(service, 'create table load (n integer)');
      let n = 0;
      // Until a whole shipment has fewer commands than this.
      for (let isDone = false; !isDone; n++) {
        const killed = await killedAt(n + 1);
        await execute(service, `insert into load values (${n})`);
        await switchWal(service);
        const { problem } = await shipAll(service, repository, killed.by);
        isDone = await killed.isDone();
        if (isDone) expect(problem).toBeNull();
        else expect(problem).toMatch(/^the repository offsite cannot /);
        expect(await shipAll(service, repository)).toMatchObject({ problem: null });
      }
      expect(n).toBeGreaterThan(1);
      await loseService(service);
      for (let at = 1, isDone = false; !isDone; at++) {
        const killed = await killedAt(at);
        const fetched = fetchBackup(
          killed.by,
          service.service_id,
          repository,
          pathsOf(service),
          ownerOf(killed.by.machine, pathsOf(service)),
          'newest',
          () => undefined,
          NEVER,
        ).then(
          () => null,
          (error: unknown) => error,
        );
        const error = await fetched;
        isDone = await killed.isDone();
        if (isDone) expect(error).toBeNull();
        else expect(error).toBeInstanceOf(RepositoryProblem);
      }
      await recoverService(service, repository);
      expect(await execute(service, 'select count(*)::integer as count from load')).toEqual([
        { count: n },
      ]);
    },
  );

  test(
    'a repository that fails is a problem with a remedy, and no database notices',
    { tags: 'slow' },
    async () => {
      const service = await cloud.create({ name: 'failing', service_type: 'POSTGRES' });
      await execute(service, 'create table load (n integer)');
      const repository = await newDirectory('failing');
      await checkRepository(context.program, repository);
      await markPassphrase(context.program, repository);
      expect(await shipAll(service, repository)).toMatchObject({ problem: null });
      const { storage } = repository;
      const missing = {
        ...repository,
        storage: { type: 'path', directory: join(place, 'none') } as const,
      };
      const full = join(place, 'full');
      await mkdir(full);
      await run('mount', ['-t', 'tmpfs', '-o', 'size=2m,mode=0777', 'none', full]);
      const failing: [Repository, RegExp][] = [
        [{ ...repository, passphrase: 'another' }, /its passphrase is not the one/],
        [missing, /the user howdah-backup cannot write it; mount its disk/],
        [
          { ...repository, storage: { type: 'path', directory: full } },
          /it is full; make room there/,
        ],
      ];
      try {
        for (const [index, [wrong, reason]] of failing.entries()) {
          await execute(service, `insert into load values (${index})`);
          await switchWal(service);
          const { problem } = await shipAll(service, { ...wrong, id: `wrong ${index}` });
          expect(problem).toMatch(reason);
          expect(problem).not.toContain(cloud.home);
          expect((await cloud.get(service.service_id)).status).toBe('READY');
        }
      } finally {
        await run('umount', [full]);
      }
      await expect(
        checkRepository(context.program, { ...repository, passphrase: 'another' }),
      ).rejects.toThrow(/passphrase/);
      expect(storage.type).toBe('path');
      expect(await shipAll(service, repository)).toMatchObject({
        problem: null,
        backlog: { files: 0 },
      });
    },
  );

  test('links and FIFOs of a tenant in its archive ship nothing of root', async () => {
    const service = await cloud.create({ name: 'hostile', service_type: 'POSTGRES' });
    const repository = await newDirectory('hostile');
    await execute(service, 'create table load (n integer)');
    await switchWal(service);
    const before = await shipAll(service, repository);
    expect(before.problem).toBeNull();
    const { archive, snapshots } = pathsOf(service);
    const [last = ''] = (await readdir(archive)).filter(isWalFile).toSorted().slice(-1);
    const hostile = join(archive, nextWalFile(last));
    const secret = join(place, 'secret');
    await writeFile(secret, Buffer.alloc(16 * 1024 ** 2, 'a secret of root '), { mode: 0o600 });
    const kinds: (() => unknown)[] = [
      () => symlink(secret, hostile),
      () => run('mkfifo', [hostile]),
      () => mkdir(hostile),
      () => link(secret, hostile),
      () => writeFile(hostile, '').then(() => truncate(hostile, 1e12)),
      () => writeFile(hostile, 'short'),
    ];
    for (const make of kinds) {
      await make();
      if (process.getuid?.() === 0 && (await lstat(hostile)).nlink === 1)
        await lchown(hostile, (await stat(archive)).uid, 0);
      const { problem } = await shipAll(service, repository);
      expect(problem).toMatch(/belongs? there|has \d+ (bytes|names)/);
      expect(problem).not.toContain(cloud.home);
      await rm(hostile, { recursive: true });
    }
    const stored = (await listFiles(context.program, repository, 'archive')).join();
    expect(stored).not.toContain(nextWalFile(last));
    expect((await stat(snapshots)).mode & 0o777).toBe(0o700);
    await execute(service, 'insert into load values (1)');
    await switchWal(service);
    expect(await shipAll(service, repository)).toMatchObject({ problem: null });
  });

  test('objects come back as they were written, and are encrypted', async () => {
    const repository = await newDirectory('objects');
    const { program: found } = context;
    await checkRepository(found, repository);
    const contents = randomBytes(300_000);
    await putObject(found, repository, 'metadata/1.dump', contents);
    expect(await getObject(found, repository, 'metadata/1.dump')).toEqual(contents);
    expect(await getObject(found, repository, 'metadata/2.dump')).toBeNull();
    expect(await listObjects(found, repository, 'metadata')).toEqual(['metadata/1.dump']);
    expect(await listObjects(found, repository, 'none')).toEqual([]);
    expect(await listObjects(found, repository, '')).toContain('metadata/1.dump');
    const stored = await readFile(join(place, 'objects', 'howdah', 'metadata', '1.dump'));
    expect(stored.includes(contents.subarray(0, 64))).toBe(false);
    for (const _ of [1, 2]) await removeObject(found, repository, 'metadata/1.dump');
    expect(await listObjects(found, repository, 'metadata')).toEqual([]);
  });

  test('backups of a service that is gone are removed after the retention', async () => {
    const repository = { ...(await newDirectory('gone')), retentionDays: 7 };
    const { program: found } = context;
    const DAY_MS = 86_400_000;
    const nowMs = Date.now();
    /** @param of what is known of the services of the stanzas */
    const removedAfter = (
      days: number,
      known: readonly string[],
      of: Partial<Omit<KnownService, 'stanzas'>> = {},
    ): Promise<string[]> =>
      removeUnknownServices(
        found,
        repository,
        async (ids) =>
          new Map(
            known
              .filter((stanza) => ids.includes(serviceOf(stanza)))
              .map((stanza) => [
                serviceOf(stanza),
                { stanzas: [stanza], removedMs: null, retentionDays: null, ...of },
              ]),
          ),
        nowMs + days * DAY_MS,
      );
    const left = async (): Promise<string[]> => [
      ...(await readdir(join(place, 'gone', 'backup'))),
      ...(await readdir(join(place, 'gone', 'archive'))),
    ];
    expect(await removedAfter(0, [])).toEqual([]);
    for (const stanza of ['backup/kept', 'backup/lost', 'archive/kept', 'archive/lost'])
      await makeFileIn(join(place, 'gone', stanza));
    expect(await removedAfter(0, ['kept'])).toEqual([]);
    // Back for a while: the time begins again.
    expect(await removedAfter(6, ['kept', 'lost'])).toEqual([]);
    expect(await removedAfter(8, ['kept'])).toEqual([]);
    expect(await removedAfter(14.9, ['kept'])).toEqual([]);
    expect((await left()).toSorted()).toEqual(['kept', 'kept', 'lost', 'lost']);
    expect(await removedAfter(15, ['kept'])).toEqual(['lost']);
    expect(await left()).toEqual(['kept', 'kept']);
    expect(await listObjects(found, repository, 'unknown')).toEqual([]);

    // Deleted: the time begins when its data is removed, whatever an earlier note says.
    expect(await removedAfter(20, [])).toEqual([]);
    const deletedMs = nowMs + 21 * DAY_MS;
    expect(await removedAfter(22, ['kept'], { removedMs: deletedMs })).toEqual([]);
    expect(await removedAfter(27.9, ['kept'], { removedMs: deletedMs })).toEqual([]);
    // The installation forgets it as soon as the time is over.
    expect(await removedAfter(28, [])).toEqual(['kept']);
    expect(await left()).toEqual([]);

    // The backups from before an upgrade stay as long as there is none of after it.
    await makeFileIn(join(place, 'gone', 'backup/again'));
    await makeFileIn(join(place, 'gone', 'backup/again-upgrade'));
    expect(await removedAfter(30, ['again-upgrade'])).toEqual([]);
    expect(await removedAfter(40, ['again-upgrade'])).toEqual([]);
    await makeFileIn(join(place, 'gone', 'backup/again-upgrade/20260102-030405F'));
    expect(await removedAfter(40, ['again-upgrade'])).toEqual(['again']);
    expect(await left()).toEqual(['again-upgrade']);
  });

  test('backups of a deleted service are kept for its own retention', async () => {
    const repository = { ...(await newDirectory('own')), retentionDays: 7 };
    const nowMs = Date.now();
    const service = (id: string, retentionDays: number) =>
      [id, { stanzas: [id], removedMs: nowMs, retentionDays }] as const;
    const known = new Map([service('short', 1), service('long', 30)]);
    const removedAfter = (days: number, rows: ReadonlyMap<string, KnownService>) =>
      removeUnknownServices(
        context.program,
        repository,
        async () => rows,
        nowMs + days * 86_400_000,
      );
    for (const stanza of ['backup/short', 'backup/long', 'archive/short', 'archive/long'])
      await makeFileIn(join(place, 'own', stanza));
    expect(await removedAfter(0.9, known)).toEqual([]);
    // The installation forgets it as soon as the time is over.
    expect(await removedAfter(1, new Map([service('long', 30)]))).toEqual(['short']);
    expect(await removedAfter(29.9, known)).toEqual([]);
    expect(await removedAfter(29.9, new Map())).toEqual([]);
    expect(await removedAfter(30, new Map())).toEqual(['long']);
    expect(await listObjects(context.program, repository, 'unknown')).toEqual([]);
  });
});

describe.runIf(!isServed)('without a pgBackRest for its PostgreSQL', () => {
  let plain: Installation;
  beforeAll(async () => {
    plain = await install();
  });
  afterAll(async () => expect(await plain.destroy()).toEqual([]));

  test('howdah doctor says what is missing, and which command adds it', async () => {
    const { stdout } = await plain.cli('doctor');
    expect(stdout).toMatch(/pgBackRest/);
    expect(whyNotServed(program, 17)).toMatch(/apt-get install pgbackrest|newer can/);
  });
});
