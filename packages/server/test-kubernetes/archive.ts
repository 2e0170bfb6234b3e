/** Archived WAL in the object store of a region, and forks of moments of the past. */
import { expect } from 'vitest';
import { Type } from 'typebox';
import { removeAll, settle } from '../src/engine/conformance/subject.ts';
import { namespaceOf, podOf } from '../src/engine/kubernetes/manifests/names.ts';
import { folderOf, type ObjectStore } from '../src/engine/object-store.ts';
import type { ServiceSpec } from '../src/engine/spec.ts';
import { operator, rig, s3, testWithDouble } from './cloud.ts';
import { pathOf, paused, withSubject } from './faults.ts';
import { FORK_PASSWORD, forkOf } from './forks.ts';
import type { KubernetesSubject } from './subject.ts';

const KEEP = { removes: true, quotaBytes: 1e9 };

const inServer = ({ projectId }: KubernetesSubject, { id }: ServiceSpec, sql: string) =>
  rig().exec(
    { metadata: { namespace: namespaceOf(projectId), name: podOf(id, 0) } },
    `psql --no-psqlrc --host=/tmp --username=postgres --command="${sql}"`,
  );

/** Does not wait for the time after which PostgreSQL ends a file. */
const endFile = (subject: KubernetesSubject, spec: ServiceSpec): Promise<string> =>
  inServer(subject, spec, 'select pg_switch_wal()');

const windowOf = async ({ engine }: KubernetesSubject, { id }: ServiceSpec) =>
  (await engine.backups.describe(id)).window;

/** Has the first base backup taken, and one more if it fails. */
async function backUp(subject: KubernetesSubject, spec: ServiceSpec): Promise<void> {
  const look = async () => {
    await subject.engine.backups.keep(spec.id, KEEP);
    const { problem, window } = await subject.engine.backups.describe(spec.id);
    return { problem, earliest: window.earliest };
  };
  const earliest: unknown = expect.any(String);
  await expect.poll(look, { interval: 5000 }).toEqual({ problem: null, earliest });
}

/** Waits until all up to a moment is archived. */
async function archivedTo(
  subject: KubernetesSubject,
  spec: ServiceSpec,
  moment: string,
): Promise<void> {
  await expect
    .poll(
      async () => {
        await endFile(subject, spec);
        return Date.parse((await windowOf(subject, spec)).latest ?? '') >= Date.parse(moment);
      },
      { interval: 2000 },
    )
    .toBe(true);
}

/** The moment between two statements, by the clock of the server. */
const momentIn = (subject: KubernetesSubject, spec: ServiceSpec): Promise<string> =>
  subject.withClient(spec, async (client) => {
    const { rows } = await client.query<{ now: Date }>('select clock_timestamp() as now');
    await subject.wait(20);
    return rows[0]?.now.toISOString() ?? '';
  });

const execute = (subject: KubernetesSubject, spec: ServiceSpec, sql: string, password?: string) =>
  subject.withClient(
    spec,
    async (client) => (await client.query<{ n: number }>(sql)).rows.map(({ n }) => n),
    password,
  );

const filesOf = (store: ObjectStore, { id }: Pick<ServiceSpec, 'id'>): Promise<string[]> =>
  s3().filesIn(`${folderOf(store)}/s-${id}`);

testWithDouble(
  'a fork of a moment has what was committed before it, and nothing later',
  async () => {
    const store = s3().newStore();
    await withSubject(
      async (subject) => {
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
        expect(steps).toEqual([
          'create Cluster',
          'start PostgreSQL',
          'detach from parent',
          'connect',
        ]);
        const inFork = (sql: string) => execute(subject, fork, sql, FORK_PASSWORD);
        expect(await inFork('select n from rows order by n')).toEqual([1, 2, 3, 4, 5]);
        expect(await inFork('select n from past')).toEqual([1]);
        expect(await subject.canLogIn(fork, subject.firstPassword)).toBe(false);
        const cluster = await operator().api.read(pathOf(subject, fork), Type.Unknown());
        expect(JSON.stringify(cluster)).not.toContain(parent.id);
        // It has a folder of its own.
        await backUp(subject, fork);
        const names = await s3().filesIn(folderOf(store));
        expect(new Set(names.map((name) => name.split('/')[0]))).toEqual(
          new Set([`s-${parent.id}`, `s-${fork.id}`]),
        );
        await removeAll(subject, parent.id);
        expect(await subject.leftovers(parent.id)).toEqual([]);
        expect(await filesOf(store, parent)).toEqual([]);
        expect(await filesOf(store, fork)).not.toEqual([]);
        await removeAll(subject, fork.id);
        expect(await subject.leftovers(fork.id)).toEqual([]);
        expect(await s3().filesIn(folderOf(store))).toEqual([]);
      },
      { store },
    );
  },
);

const warningsOf = async ({ engine }: KubernetesSubject, { id }: ServiceSpec): Promise<string> =>
  (await engine.observe.warnings(id)).map(({ message }) => message).join('; ');

/** The numbers of the archived files, of the first timeline. */
async function archivedFiles(store: ObjectStore, spec: ServiceSpec): Promise<number[]> {
  const names = await filesOf(store, spec);
  return names
    .flatMap((name) => /\/00000001([0-9A-F]{16})\.gz$/.exec(name)?.[1] ?? [])
    .map((number) => Number.parseInt(number, 16));
}

testWithDouble('a store that is away stops no service, and gets what has waited', async () => {
  const store = s3().newStore();
  await withSubject(
    async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      await backUp(subject, spec);
      await archivedTo(subject, spec, await momentIn(subject, spec));
      expect(await warningsOf(subject, spec)).toBe('');
      await s3().stop();
      try {
        for (let file = 0; file < 3; file += 1) {
          await subject.insertRows(spec, 10);
          await endFile(subject, spec);
        }
        await expect
          .poll(() => warningsOf(subject, spec))
          .toMatch(
            /object store of the region has taken no WAL since .*: (3[3-9]|[4-9]\d) MB of WAL/,
          );
        expect(await subject.canLogIn(spec, subject.firstPassword)).toBe(true);
        const { latest } = await windowOf(subject, spec);
        expect(Date.parse(latest ?? '')).toBeLessThan(Date.now());
      } finally {
        await s3().start();
      }
      await archivedTo(subject, spec, await momentIn(subject, spec));
      await expect.poll(() => warningsOf(subject, spec)).toBe('');
      const files = await archivedFiles(store, spec);
      const [first = 0] = files;
      expect(files).toEqual(files.map((_, index) => first + index));
      await removeAll(subject, spec.id);
    },
    { store },
  );
});

testWithDouble('a service archives from its next restart on, and says what is in the way', () =>
  withSubject(async (subject) => {
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
    await expect.poll(() => warningsOf(subject, spec)).toContain('has taken no WAL');
    expect(await windowOf(subject, spec)).toMatchObject({ earliest: null, latest: null });
    subject.keepIn(store);
    await subject.engine.backups.keep(spec.id, KEEP);
    await archivedTo(subject, spec, await momentIn(subject, spec));
    await expect.poll(() => warningsOf(subject, spec)).toBe('');
    // A stop leaves the window as it is.
    const { latest } = await windowOf(subject, spec);
    await settle(subject, paused(restarted));
    expect((await windowOf(subject, spec)).latest).toBe(latest);
    await removeAll(subject, spec.id);
    expect(await filesOf(store, spec)).toEqual([]);
  }),
);
