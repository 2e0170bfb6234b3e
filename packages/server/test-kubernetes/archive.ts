/** Archived WAL in the object store of a region, and forks of moments of the past. */
import { describe, expect } from 'vitest';
import { Type } from 'typebox';
import { folderOf, type ObjectStore, type ServiceSpec } from '../test/probe.ts';
import { operator, rig, s3, testWithPlugin } from './cloud.ts';
import { pathOf, paused, withSubject } from './faults.ts';
import { FORK_PASSWORD, forkOf } from './forks.ts';
import { pathIn } from './operator/cluster.ts';
import { namespaceOf, podOf, removeAll, settle, storeSecret } from './probe.ts';
import { startS3, type S3 } from './s3.ts';
import type { KubernetesSubject } from './subject.ts';
import { untilExpected } from '../test/until.ts';

const KEEP = { removes: true, quotaBytes: 1e9 };

/** The pods of CloudNativePG know where the socket is; those of its double have it in /tmp. */
const inServer = ({ projectId }: KubernetesSubject, { id }: ServiceSpec, sql: string) =>
  rig().exec(
    { metadata: { namespace: namespaceOf(projectId), name: podOf(id, 0) } },
    `psql --no-psqlrc --host=\${PGHOST:-/tmp} --username=postgres --command="${sql}"`,
  );

/** Does not wait for the time after which PostgreSQL ends a file. */
const endFile = (subject: KubernetesSubject, spec: ServiceSpec): Promise<string> =>
  inServer(subject, spec, 'select pg_switch_wal()');

const windowOf = async ({ engine }: KubernetesSubject, { id }: ServiceSpec) =>
  (await engine.backups.describe(id)).window;

/** Ends files of WAL ever less often: a slow machine archives one in more than a second. */
function endingFiles(subject: KubernetesSubject, spec: ServiceSpec): () => Promise<void> {
  let calls = 0;
  return async () => {
    calls += 1;
    if (Number.isInteger(Math.log2(calls))) await endFile(subject, spec);
  };
}

/** Has the first base backup taken, and one more if it fails. */
async function backUp(subject: KubernetesSubject, spec: ServiceSpec): Promise<void> {
  const next = endingFiles(subject, spec);
  await untilExpected('the service has a base backup', async () => {
    await subject.engine.backups.keep(spec.id, KEEP);
    await next();
    const { problem, window } = await subject.engine.backups.describe(spec.id);
    expect({ problem, earliest: window.earliest }).toEqual({
      problem: null,
      earliest: expect.any(String),
    });
  });
}

/** Waits until all up to a moment is archived. */
async function archivedTo(
  subject: KubernetesSubject,
  spec: ServiceSpec,
  moment: string,
): Promise<void> {
  const next = endingFiles(subject, spec);
  await untilExpected(`all WAL up to ${moment} is archived`, async () => {
    await next();
    const { latest } = await windowOf(subject, spec);
    expect(Date.parse(latest ?? '')).toBeGreaterThanOrEqual(Date.parse(moment));
  });
}

/** The moment between two statements, by the clock of the server. */
const momentIn = (subject: KubernetesSubject, spec: ServiceSpec): Promise<string> =>
  subject.withClient(spec, async (client) => {
    const { rows } = await client.query<{ now: Date }>('select clock_timestamp() as now');
    const moment = rows[0]?.now.toISOString() ?? '';
    await untilExpected('the clock of the server goes on', async () =>
      expect((await client.query(`select clock_timestamp() > $1 as later`, [moment])).rows).toEqual(
        [{ later: true }],
      ),
    );
    return moment;
  });

const execute = (subject: KubernetesSubject, spec: ServiceSpec, sql: string, password?: string) =>
  subject.withClient(
    spec,
    async (client) => (await client.query<{ n: number }>(sql)).rows.map(({ n }) => n),
    password,
  );

const filesOf = (
  store: ObjectStore,
  { id }: Pick<ServiceSpec, 'id'>,
  server = s3(),
): Promise<string[]> => server.filesIn(`${folderOf(store)}/s-${id}`);

const untilStored = (store: ObjectStore, spec: ServiceSpec): Promise<void> =>
  untilExpected('the object store has files of the service', async () =>
    expect(await filesOf(store, spec)).not.toEqual([]),
  );

const SECRET = Type.Object({ metadata: Type.Object({ name: Type.String() }) });

const BACKUP = Type.Object({
  status: Type.Optional(Type.Object({ phase: Type.Optional(Type.String()) })),
});
const backupsIn = ({ projectId }: KubernetesSubject): string =>
  `/apis/postgresql.cnpg.io/v1/namespaces/${namespaceOf(projectId)}/backups`;

/** Whether the namespace of a project has the key of the bucket. */
async function hasKey({ projectId }: KubernetesSubject): Promise<boolean> {
  const secrets = await operator().api.list(pathIn(namespaceOf(projectId), 'secrets'), SECRET);
  return secrets.some(({ metadata }) => metadata.name.startsWith(storeSecret('')));
}

const warningsOf = async ({ engine }: KubernetesSubject, { id }: ServiceSpec): Promise<string> =>
  (await engine.observe.warnings(id)).map(({ message }) => message).join('; ');

/** Waits for warnings, and has WAL archived meanwhile. */
async function warnedOf(
  subject: KubernetesSubject,
  spec: ServiceSpec,
  wanted: RegExp,
): Promise<void> {
  const next = endingFiles(subject, spec);
  await untilExpected('the service has the warnings', async () => {
    await next();
    expect(await warningsOf(subject, spec)).toMatch(wanted);
  });
}

/** The numbers of the archived files, of the first timeline. */
function archivedFiles(names: readonly string[]): number[] {
  return names
    .flatMap((name) => /\/00000001([0-9A-F]{16})\.gz$/.exec(name)?.[1] ?? [])
    .map((number) => Number.parseInt(number, 16));
}

describe.concurrent('an archive', () => {
  testWithPlugin('a fork of a moment has what was committed before it, and nothing later', () => {
    const store = s3().newStore();
    return withSubject((subject) => forkOfMoment(subject, store), { store });
  });

  testWithPlugin('a Cluster that somebody has deleted comes back, with its password', () => {
    const store = s3().newStore();
    return withSubject((subject) => deletedAndBack(subject, store), { store });
  });

  testWithPlugin(
    'a store that is away stops no service, and gets what has waited',
    { tags: 'slow' },
    async () => {
      // A server of its own: those of other tests need theirs.
      const server = await startS3(rig().machineHost, 7071);
      const store = server.newStore();
      try {
        await withSubject((subject) => awayAndBack(subject, store, server), { store });
      } finally {
        await server.close();
      }
    },
  );

  testWithPlugin('an archive is verified, and one with a gap fails its verification', () => {
    const store = s3().newStore();
    return withSubject((subject) => verifiedArchive(subject, store), { store });
  });

  testWithPlugin('a service archives from its next restart on, and says what is in the way', () =>
    withSubject(archivesOnceRestarted),
  );
});

async function forkOfMoment(subject: KubernetesSubject, store: ObjectStore): Promise<void> {
  const parent = await subject.newSpec();
  await settle(subject, parent);
  await backUp(subject, parent);
  await execute(subject, parent, 'create table past as select 1 as n');
  await execute(subject, parent, 'create table rows as select generate_series(1, 5) as n');
  const moment = await momentIn(subject, parent);
  await execute(subject, parent, 'insert into rows select generate_series(6, 9)');
  await execute(subject, parent, 'drop table past');
  await archivedTo(subject, parent, moment);
  const origin = { parent: parent.id, strategy: 'PITR', targetTime: moment } as const;
  const fork = { ...(await forkOf(subject, parent)), origin };
  const { steps } = await settle(subject, fork);
  expect(steps).toEqual(['create Cluster', 'start PostgreSQL', 'detach from parent', 'connect']);
  const inFork = (sql: string) => execute(subject, fork, sql, FORK_PASSWORD);
  expect(await inFork('select n from rows order by n')).toEqual([1, 2, 3, 4, 5]);
  expect(await inFork('select n from past')).toEqual([1]);
  expect(await subject.canLogIn(fork, subject.firstPassword)).toBe(false);
  const cluster = await operator().api.read(pathOf(subject, fork), Type.Unknown());
  expect(JSON.stringify(cluster)).not.toContain(parent.id);
  expect((await subject.engine.backups.describe(parent.id)).archive_mb).toBeGreaterThan(0);
  // A fork has a folder of its own.
  await endFile(subject, fork);
  await untilStored(store, fork);
  await forkOfNow(subject, parent, store);
  await removeAll(subject, parent.id);
  expect(await subject.leftovers(parent.id)).toEqual([]);
  expect(await filesOf(store, parent)).toEqual([]);
  expect(await filesOf(store, fork)).not.toEqual([]);
  // The key goes with the last service of its project.
  expect(await hasKey(subject)).toBe(true);
  await removeAll(subject, fork.id);
  expect(await subject.leftovers(fork.id)).toEqual([]);
  expect(await s3().filesIn(folderOf(store))).toEqual([]);
  expect(await hasKey(subject)).toBe(false);
}

/** By a snapshot, although the parent has an archive. */
async function forkOfNow(
  subject: KubernetesSubject,
  parent: ServiceSpec,
  store: ObjectStore,
): Promise<void> {
  // While a base backup is under way, the fork would be a copy.
  const backups = () => operator().api.list(backupsIn(subject), BACKUP);
  await untilExpected('no base backup is under way', async () => {
    for (const { status } of await backups()) expect(status?.phase).toMatch(/^(completed|failed)$/);
  });
  const fork = await forkOf(subject, parent);
  const { steps } = await settle(subject, fork);
  expect(steps[0], JSON.stringify(await backups())).toBe('take snapshot');
  const rows = await execute(subject, fork, 'select n from rows', FORK_PASSWORD);
  expect(rows).toHaveLength(9);
  await endFile(subject, fork);
  await untilStored(store, fork);
  await removeAll(subject, fork.id);
}

async function awayAndBack(
  subject: KubernetesSubject,
  store: ObjectStore,
  server: S3,
): Promise<void> {
  const spec = await subject.newSpec();
  await settle(subject, spec);
  await backUp(subject, spec);
  await warnedOf(subject, spec, /^$/);
  await server.stop();
  for (let file = 0; file < 3; file += 1) {
    await subject.insertRows(spec, 10);
    await endFile(subject, spec);
  }
  const waiting =
    /object store of the region has taken no WAL since .*: (3[3-9]|[4-9]\d|\d{3}) MB of WAL/;
  await untilExpected('the service warns of WAL that waits', async () =>
    expect(await warningsOf(subject, spec)).toMatch(waiting),
  );
  expect(await subject.canLogIn(spec, subject.firstPassword)).toBe(true);
  const moment = await momentIn(subject, spec);
  expect(Date.parse((await windowOf(subject, spec)).latest ?? '')).toBeLessThan(Date.parse(moment));
  await server.start();
  // A recovery to the moment needs a later commit.
  await subject.insertRows(spec, 1);
  await archivedTo(subject, spec, moment);
  // A base backup that was being taken has failed.
  await backUp(subject, spec);
  expect(await warningsOf(subject, spec)).toBe('');
  const files = archivedFiles(await filesOf(store, spec, server));
  const [first = 0] = files;
  expect(files.length).toBeGreaterThan(3);
  expect(files).toEqual(files.map((_, index) => first + index));
  await removeAll(subject, spec.id);
}

/** Verifies the snapshot or the archive, whichever is next. @returns the steps, and the result */
async function verify(subject: KubernetesSubject, spec: ServiceSpec) {
  const steps: string[] = [];
  const { verification } = await subject.engine.backups.verify(
    spec,
    async (name, work) => {
      steps.push(name);
      await work(() => undefined);
    },
    new AbortController().signal,
  );
  return { steps, verification };
}

async function verifiedArchive(subject: KubernetesSubject, store: ObjectStore): Promise<void> {
  const spec = await subject.newSpec();
  await settle(subject, spec);
  await backUp(subject, spec);
  await subject.insertRows(spec, 1000);
  const moment = await momentIn(subject, spec);
  await archivedTo(subject, spec, moment);
  expect((await verify(subject, spec)).steps[0]).toBe('restore snapshot');
  const { steps, verification } = await verify(subject, spec);
  expect(steps).toEqual([
    'restore from object store',
    'replay WAL',
    'check tables and indexes',
    'count rows',
    'check page checksums',
  ]);
  expect(verification).toMatchObject({ succeeded: true });
  expect(Date.parse(verification.recovery_point ?? '')).toBeGreaterThanOrEqual(Date.parse(moment));
  expect(await subject.canLogIn(spec, subject.firstPassword)).toBe(true);
  // The files of WAL from the base backup on, without the newest ones.
  const folder = `${folderOf(store)}/s-${spec.id}`;
  const gap = (await filesOf(store, spec)).filter((name) =>
    /\/00000001[0-9A-F]{16}\.gz$/.test(name),
  );
  for (const file of gap) await s3().remove(folder, file);
  await verify(subject, spec);
  const failed = await verify(subject, spec);
  expect(failed.steps).toEqual(['restore from object store']);
  expect(failed.verification).toMatchObject({
    succeeded: false,
    problem: expect.stringContaining('restore from object store'),
  });
  await removeAll(subject, spec.id);
  expect(await subject.leftovers(spec.id)).toEqual([]);
}

async function archivesOnceRestarted(subject: KubernetesSubject): Promise<void> {
  const spec = await subject.newSpec();
  await settle(subject, spec);
  const store = s3().newStore();
  subject.keepIn({ ...store, key: 'another secret' });
  expect(await warningsOf(subject, spec)).toContain('restart it');
  await settle(subject, spec);
  expect(await filesOf(store, spec)).toEqual([]);
  const restarted = { ...spec, restarts: 1 };
  const { steps } = await settle(subject, restarted);
  expect(steps).toEqual(['restart PostgreSQL', 'connect']);
  await endFile(subject, spec);
  await warnedOf(subject, spec, /has taken no WAL/);
  expect(await windowOf(subject, spec)).toMatchObject({ earliest: null, latest: null });
  subject.keepIn(store);
  await warnedOf(subject, spec, /^$/);
  await backUp(subject, spec);
  // A stop leaves the window as it is.
  const { latest } = await windowOf(subject, spec);
  await settle(subject, paused(restarted));
  expect((await windowOf(subject, spec)).latest).toBe(latest);
  await removeAll(subject, spec.id);
  expect(await filesOf(store, spec)).toEqual([]);
}

/**
 * A recovered service goes on in its archive: what is committed after the recovery can be forked
 * too.
 */
async function deletedAndBack(subject: KubernetesSubject, store: ObjectStore): Promise<void> {
  const spec = await subject.newSpec();
  await settle(subject, spec);
  await untilStored(store, spec);
  await backUp(subject, spec);
  await subject.insertRows(spec, 100);
  await archivedTo(subject, spec, await momentIn(subject, spec));
  await operator().api.remove(pathOf(subject, spec));
  const known = { ...spec, provisioned: true };
  await untilExpected('it says what brings it back', async () => {
    const { engine } = subject;
    const verdict = await engine.lifecycle.converge(known, async () => undefined);
    expect(JSON.stringify(verdict)).toContain('howdah service recover');
    expect(await engine.backups.restorable(spec.id, [])).toMatchObject({ isLost: true });
  });
  const recovery = { id: 'recovery12', repository: null, at: null };
  const { steps } = await settle(subject, { ...known, recovery });
  expect(steps).toEqual(['create Cluster', 'start PostgreSQL', 'end the recovery', 'connect']);
  expect(await subject.countRows(spec)).toBe(100);
  await subject.insertRows(spec, 1);
  await archivedTo(subject, known, await momentIn(subject, spec));
  await settle(subject, paused(known));
  await settle(subject, known);
  expect(await subject.countRows(spec)).toBe(101);
  await removeAll(subject, spec.id);
  expect(await filesOf(store, spec)).toEqual([]);
}
