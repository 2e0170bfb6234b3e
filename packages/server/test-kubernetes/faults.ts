/** Faults of a cluster, of its operator and of others who change its objects. */
import { describe, expect, test } from 'vitest';
import type { ObjectStore, ServiceSpec, Verdict } from '../test/probe.ts';
import { operator, rig, testWithDouble } from './cloud.ts';
import { openLedger } from './ledger.ts';
import { CLUSTERS, pathIn } from './operator/cluster.ts';
import {
  clusterName,
  DESIRED,
  namespaceOf,
  podOf,
  removeAll,
  replicated,
  settle,
} from './probe.ts';
import { messagesOf } from './server-log.ts';
import { createKubernetesSubject, type KubernetesSubject } from './subject.ts';
import { until, untilExpected } from '../test/until.ts';

export const paused = (spec: ServiceSpec): ServiceSpec => ({ ...spec, power: 'paused' });
export const larger = (spec: ServiceSpec): ServiceSpec => ({
  ...spec,
  size: { cpuMillis: 750, memoryGbs: 3 },
});

export const pathOf = ({ projectId }: KubernetesSubject, { id }: ServiceSpec): string =>
  `${CLUSTERS}/namespaces/${namespaceOf(projectId)}/clusters/${clusterName(id)}`;

/** @param images of PostgreSQL and of PgBouncer; none: those of the rig; and an object store */
export async function withSubject(
  work: (subject: KubernetesSubject) => Promise<void>,
  images: Readonly<{ image?: string; pooler?: string; store?: ObjectStore }> = {},
): Promise<void> {
  const subject = await createKubernetesSubject(rig(), operator().api, images);
  try {
    await work(subject);
  } finally {
    await subject.destroy();
  }
}

/** Makes steps until a verdict is as wanted. The engine notices changes of others later. */
export async function converge(
  { engine, wait }: KubernetesSubject,
  spec: ServiceSpec,
  isWanted: (verdict: Verdict) => boolean,
): Promise<Verdict> {
  const last = await until('the engine comes to the expected verdict', async () => {
    const verdict = await engine.lifecycle.converge(spec, async () => undefined);
    if (isWanted(verdict) || verdict.outcome === 'failed') return verdict;
    if (verdict.outcome === 'again') await wait(verdict.waitMs);
    return null;
  });
  if (!isWanted(last)) throw new Error(JSON.stringify(last));
  return last;
}

/** Makes steps that fail again: kube-proxy may notice late that the API server is back. */
export const untilSettled = (subject: KubernetesSubject, spec: ServiceSpec): Promise<void> =>
  untilExpected('the service is settled', async () => {
    const { outcome } = await subject.engine.lifecycle.converge(spec, async () => undefined);
    expect(outcome).toBe('settled');
  });

export const reasonOf = (verdict: Verdict): string =>
  verdict.outcome === 'failed' ? verdict.reason : `no failure: ${JSON.stringify(verdict)}`;

describe.concurrent('a service', () => {
  test('says which image cannot be pulled, and can be stopped and removed', () =>
    withSubject(
      async (subject) => {
        const spec = await subject.newSpec();
        const failed = await converge(subject, spec, ({ outcome }) => outcome === 'failed');
        expect(reasonOf(failed)).toMatch(/start PostgreSQL: .*(ErrImagePull|ImagePullBackOff)/);
        // The service never becomes healthy, which a hibernation waits for.
        expect((await settle(subject, paused(spec))).steps).toEqual(['stop PostgreSQL']);
        await removeAll(subject, spec.id);
        expect(await subject.leftovers(spec.id)).toEqual([]);
      },
      { image: 'localhost/howdah/missing:17' },
    ));

  test('says who else manages a field, and goes on once that is over', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const path = pathOf(subject, spec);
      const { api } = operator();
      const change = (memory: string) =>
        api.merge(`${path}?fieldManager=somebody`, {
          spec: { resources: { limits: { memory }, requests: { memory } } },
        });
      await change('1536Mi');
      const failed = await converge(subject, larger(spec), ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toContain('somebody');
      await change('3Gi');
      await settle(subject, larger(spec));
      await removeAll(subject, spec.id);
    }));

  test('that somebody has deleted is not created again, empty', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      await operator().api.remove(pathOf(subject, spec));
      const known = { ...spec, provisioned: true };
      const failed = await converge(subject, known, ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toContain('its Cluster is gone, with its data');
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }));
});

test('the log of a server that has ended is still read when it runs again', () =>
  withSubject(async (subject) => {
    const spec = await subject.newSpec();
    await settle(subject, spec);
    await subject.withClient(spec, (client) =>
      client.query("do $$ begin raise log 'before the end'; end $$"),
    );
    const { namespace, name } = {
      namespace: namespaceOf(subject.projectId),
      name: podOf(spec.id, 0),
    };
    const pid = '/var/lib/postgresql/data/pgdata/postmaster.pid';
    await rig()
      .exec({ metadata: { namespace, name } }, `kill -QUIT "$(head -n 1 ${pid})"`)
      .catch(() => undefined); // the container ends
    const readLog = () => messagesOf(subject, spec);
    const afterTheEnd = async () => (await readLog()).join('\n').split('before the end')[1];
    await untilExpected('the server log shows the new start', async () =>
      expect(await afterTheEnd()).toContain('database system is ready to accept connections'),
    );
    const messages = await readLog();
    expect(messages).toContain('before the end');
    expect(messages).toContain('received immediate shutdown request');
    await removeAll(subject, spec.id);
  }));

testWithDouble('an operator that is stuck, or reports an unknown phase, delays a start', () =>
  withSubject(async (subject) => {
    const { faults } = operator();
    const spec = await subject.newSpec();
    faults.isStuck = true;
    try {
      const waits = await converge(
        subject,
        spec,
        ({ detail }) => detail?.includes('CloudNativePG: ') === true,
      );
      expect(waits).toMatchObject({ outcome: 'again', detail: 'CloudNativePG: no answer yet' });
      faults.phase = 'Rebalancing the moon';
      faults.isStuck = false;
      await converge(
        subject,
        spec,
        ({ detail }) => detail === 'CloudNativePG: Rebalancing the moon',
      );
    } finally {
      Object.assign(faults, { isStuck: false, phase: null });
    }
    await settle(subject, spec);
    await removeAll(subject, spec.id);
  }),
);

testWithDouble('an API server that ends in a create and in a stop delays both', () =>
  withSubject(async (subject) => {
    const spec = await subject.newSpec();
    const { faults } = operator();
    for (const wanted of [spec, paused(spec)]) {
      // Otherwise it could be done before the API server ends.
      faults.isStuck = true;
      await converge(
        subject,
        wanted,
        ({ detail }) => detail?.startsWith('CloudNativePG: ') === true,
      );
      await rig().stopApi();
      try {
        await converge(subject, wanted, ({ detail }) => detail?.includes('no answer') === true);
        expect(await subject.engine.lifecycle.whyNoChanges()).toBe(
          'its Kubernetes cluster does not answer',
        );
      } finally {
        await rig().startApi();
        faults.isStuck = false;
      }
      await untilSettled(subject, wanted);
    }
    await untilSettled(subject, spec);
    expect(await subject.canLogIn(spec, subject.firstPassword)).toBe(true);
    await removeAll(subject, spec.id);
  }),
);

testWithDouble(
  'a service with a server that is never healthy is stopped, and started again',
  { tags: 'slow' },
  () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      const { faults } = operator();
      await settle(subject, spec);
      await subject.insertRows(spec, 3);
      faults.isUnhealthy = true;
      try {
        const { steps, last } = await settle(subject, paused(spec));
        expect(steps).toEqual(['stop PostgreSQL']);
        expect(last.seen.reachable).toBe(false);
        expect(await subject.canLogIn(spec, subject.firstPassword)).toBe(false);
        expect(await subject.engine.lifecycle.runs(spec.id)).toBe(false);
        expect((await settle(subject, spec)).steps).toEqual(['start PostgreSQL', 'connect']);
      } finally {
        faults.isUnhealthy = false;
      }
      expect(await subject.countRows(spec)).toBe(3);
      await removeAll(subject, spec.id);
    }),
);

/** A session of the superuser in the pod of a server. CloudNativePG has another directory. */
export const SUPERUSER =
  'psql --no-psqlrc --username=postgres ' +
  '--host=$(test -d /controller/run && echo /controller/run || echo /tmp)';

/** The secret, and the SQL that takes away all else that an earlier release did not make. */
type Lack = Readonly<{ secretOf: (id: string) => string; database: string; sql: string }>;

/** Makes a service one of an earlier release. */
export async function makeOlder(
  subject: KubernetesSubject,
  spec: ServiceSpec,
  { secretOf, database, sql }: Lack,
): Promise<void> {
  const { api } = operator();
  const namespace = namespaceOf(subject.projectId);
  await api.merge(pathOf(subject, spec), {
    metadata: { annotations: { [DESIRED]: null } },
    spec: { managed: { roles: null } },
  });
  await api.merge(`${pathOf(subject, spec)}/status`, { status: { managedRolesStatus: null } });
  await api.remove(pathIn(namespace, 'secrets', secretOf(spec.id)));
  const pod = { metadata: { namespace, name: podOf(spec.id, 0) } };
  await rig().exec(pod, `${SUPERUSER} --dbname=${database} --command='${sql}'`);
}

/** CloudNativePG allows no ALTER SYSTEM. PostgreSQL reads the file of it all the same. */
const SYSTEM_FILE =
  `$(${SUPERUSER} --tuples-only --no-align --command='show data_directory')` +
  '/postgresql.auto.conf';
const RELOAD = `${SUPERUSER} --command='select pg_reload_conf()'`;
/** Has a standby follow no primary, in its pod. */
const STOP_FOLLOWING = `echo "primary_conninfo = ''" >>"${SYSTEM_FILE}" && ${RELOAD}`;
const FOLLOW = `sed --in-place /primary_conninfo/d "${SYSTEM_FILE}" && ${RELOAD}`;

/** The standbys that stream from the primary at the endpoint, which may route to a former one. */
const streaming = (subject: KubernetesSubject, spec: ServiceSpec): Promise<number> =>
  subject
    .withClient(spec, async (client) => {
      const { rowCount } = await client.query(
        "select from pg_stat_replication where state = 'streaming' and application_name like 's-%'",
      );
      return rowCount ?? 0;
    })
    .catch(() => 0);

test('a primary that is killed under load twice loses no acknowledged write', () =>
  withSubject(async (subject) => {
    const spec = replicated(subject, await subject.newSpec(), 2);
    const { records, projectId } = subject;
    const { api } = operator();
    await settle(subject, spec);
    const bothStream = () =>
      until('both standbys stream', async () => (await streaming(subject, spec)) === 2);
    await bothStream();
    const namespace = namespaceOf(projectId);
    const ledger = await openLedger((work) => subject.withClient(spec, work));
    for (let kill = 1; kill <= 2; kill += 1) {
      await ledger.goesOn();
      const before = records.primary(spec.id) ?? 0;
      // One of the two has each write, as PostgreSQL promises: the other one may not take over.
      const late = { metadata: { namespace, name: podOf(spec.id, before === 1 ? 0 : 1) } };
      await rig().exec(late, STOP_FOLLOWING);
      await until('one standby lags', async () => (await streaming(subject, spec)) === 1);
      await ledger.goesOn();
      await api.remove(pathIn(namespace, 'pods', podOf(spec.id, before)), 0);
      await until('another server is the primary', async () => records.primary(spec.id) !== before);
      await rig().exec(late, FOLLOW);
      await ledger.goesOn();
      await settle(subject, spec);
      expect(records.primary(spec.id)).not.toBe(before);
      await until('the failover is reported', async () => records.ended.length === kill);
      await bothStream();
    }
    expect(records.ended.map(({ why }) => why)).toEqual([null, null]);
    expect(await ledger.end()).toEqual([]);
    await removeAll(subject, spec.id);
    expect(await subject.leftovers(spec.id)).toEqual([]);
  }));
