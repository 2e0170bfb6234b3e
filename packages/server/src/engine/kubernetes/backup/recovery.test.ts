/** Verifications of archives in the object store of a region. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import type { ObjectStore } from '../../object-store.ts';
import {
  ID,
  NAMESPACE,
  newSpec,
  openCloud,
  runServers,
  until,
  untilAwaited,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import { listOf, STORE, withStore } from './s3.testing.ts';
import { damageIn } from './recovery.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

const POD = `/api/v1${NAMESPACE}/pods/s-${ID}-verification`;
const COPY = `/apis/postgresql.cnpg.io/v1${NAMESPACE}/clusters/v-${ID}`;
const BACKUP = `/apis/postgresql.cnpg.io/v1${NAMESPACE}/backups/s-${ID}-20260101000000-base`;
const TAKEN = '2026-01-01T00:00:00Z';
const ARCHIVED = '2026-01-01T10:00:00.000Z';
const labels = { 'howdah.io/service': ID, 'howdah.io/region': 'kube' };

/** A running service whose archive reaches a moment. */
async function withArchive(store: ObjectStore): Promise<ServiceSpec> {
  cloud.store = store;
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  const window = { firstRecoverabilityPoint: TAKEN, lastSuccessfulBackupTime: TAKEN };
  cloud.fake.put(`/apis/barmancloud.cnpg.io/v1${NAMESPACE}/objectstores/s-${ID}`, {
    metadata: { labels, uid: 'u' },
    status: { serverRecoveryWindow: { [`s-${ID}`]: window } },
  });
  cloud.fake.put(`/api/v1${NAMESPACE}/configmaps/s-${ID}-archived`, {
    metadata: { labels, uid: 'u' },
    data: { store: store.id, to: ARCHIVED },
  });
  cloud.fake.put(BACKUP, {
    metadata: { creationTimestamp: TAKEN, labels, uid: 'u' },
    spec: { cluster: { name: `s-${ID}` }, method: 'plugin' },
    status: { phase: 'completed', stoppedAt: TAKEN },
  });
  await until(async () => (await cloud.engine.backups.describe(ID)).window.latest === ARCHIVED);
  return spec;
}

const steps: string[] = [];
const verify = (spec: ServiceSpec, signal = new AbortController().signal) => {
  steps.length = 0;
  return cloud.engine.backups.verify(
    spec,
    async (name, work) => void steps.push(`${name}: ${await work(() => undefined)}`),
    signal,
  );
};

const copy = () => cloud.fake.objects.get(COPY);
const line = (step: string, detail: string): string =>
  `${step} ok ${Buffer.from(detail).toString('base64')}\n`;
const OUTPUT =
  line('restore', '61 MB') +
  line('replay', 'accepting connections') +
  line('relations', '9 tables') +
  line('rows', 'not done') +
  line('pages', '5 pages');

/** A pod of the job that recovers the archive. @param exitCode of its container */
const putJob = (name: string, phase: string, exitCode?: number): string => {
  const path = `/api/v1${NAMESPACE}/pods/${name}`;
  const of = { 'cnpg.io/cluster': `v-${ID}`, 'howdah.io/verification': `s-${ID}` };
  const state = exitCode === undefined ? {} : { terminated: { exitCode } };
  cloud.fake.put(path, {
    metadata: { labels: { ...of, 'howdah.io/region': 'kube' }, uid: name },
    spec: { containers: [{ name: 'full-recovery' }] },
    status: { phase, containerStatuses: [{ name: 'full-recovery', state }] },
  });
  return path;
};

test('an archive is recovered by a Cluster of its own, whose volume a pod examines', async () => {
  const spec = await withArchive(STORE);
  const verifying = verify(spec);
  await until(async () => copy() !== undefined);
  expect(copy()).toMatchObject({
    metadata: {
      labels: { 'howdah.io/verification': `s-${ID}` },
      ownerReferences: [{ kind: 'Cluster', name: `s-${ID}` }],
    },
    spec: {
      instances: 1,
      imageName: 'postgres:17',
      // The volume of the service may be full.
      storage: { size: '12G' },
      postgresql: {
        parameters: { max_wal_size: '96MB', wal_keep_size: '0', event_triggers: 'off' },
        shared_preload_libraries: [],
        pg_hba: ['host all all all reject'],
      },
      bootstrap: { recovery: { source: 'archive', recoveryTarget: { targetTime: ARCHIVED } } },
      externalClusters: [{ plugin: { parameters: { serverName: `s-${ID}` } } }],
    },
  });
  expect(Object(copy()).metadata.labels['howdah.io/service']).toBeUndefined();
  expect(Object(copy()).spec.plugins).toBeUndefined();
  const job = putJob(`v-${ID}-1-full-recovery-x`, 'Succeeded');
  cloud.fake.put(COPY, { ...copy(), status: { readyInstances: 1 } });
  const hibernation = () => Object(copy()).metadata.annotations['cnpg.io/hibernation'];
  await until(async () => hibernation() === 'on');
  cloud.fake.put(COPY, {
    ...copy(),
    status: { conditions: [{ type: 'cnpg.io/hibernation', status: 'True' }] },
  });
  await until(async () => cloud.fake.objects.has(POD));
  const pod = Object(cloud.fake.objects.get(POD));
  expect(pod.spec.volumes[0].persistentVolumeClaim).toEqual({ claimName: `v-${ID}-1` });
  cloud.fake.logs.set(POD, { output: OUTPUT.split('\n').map((text) => [0, text]) });
  cloud.fake.put(POD, { ...pod, status: { phase: 'Succeeded' } });
  await until(async () => copy() === undefined);
  cloud.fake.take(job);
  const { verification, restored } = await verifying;
  expect(verification).toMatchObject({ succeeded: true, recovery_point: ARCHIVED });
  expect(restored).toMatchObject({
    backup: { place: 'object store' },
    postgresql_version: null,
    contents: null,
    pages: null,
  });
  expect(steps).toEqual([
    `restore from object store: up to ${ARCHIVED}: 61 MB`,
    'replay WAL: accepting connections',
    'check tables and indexes: 9 tables',
    'count rows: not done',
    'check page checksums: 5 pages',
  ]);
  expect(cloud.fake.objects.has(POD)).toBe(false);
  expect((await cloud.engine.backups.describe(ID)).last_verification?.succeeded).toBe(true);
});

const FATAL = 'recovery ended before configured recovery target was reached';

/** The job of the Cluster fails, with this output. Another Cluster waits for its pod to go. */
async function fail(output = `FATAL:  ${FATAL}`, exitCode = 1): Promise<void> {
  await until(async () => copy() !== undefined);
  const path = `/api/v1${NAMESPACE}/pods/v-${ID}-1-full-recovery-x`;
  cloud.fake.logs.set(path, { output: [[0, output]] });
  putJob(`v-${ID}-1-full-recovery-x`, 'Failed', exitCode);
  await until(async () => copy() === undefined);
  cloud.fake.take(path);
}

const answering = (work: (store: ObjectStore) => Promise<void>): Promise<void> =>
  withStore((_, answer) => void answer.end(listOf('')), work);

test('an archive that two Clusters cannot recover is a result', () =>
  answering(async (store) => {
    const verifying = verify(await withArchive(store));
    await fail();
    await fail();
    expect((await verifying).verification).toMatchObject({
      succeeded: false,
      recovery_point: null,
      problem: `restore from object store: up to ${ARCHIVED}: ${FATAL}`,
    });
    expect(cloud.fake.objects.has(POD)).toBe(false);
  }));

test.each([
  ['a killed pod', `FATAL:  ${FATAL}`, 137, 'was killed'],
  ['another reason', 'no such secret', 1, 'has failed for another reason'],
  ['a full volume', 'FATAL:  could not extend: No space left on device', 1, 'another reason'],
])('%s says nothing of the archive', (_, output, exitCode, why) =>
  answering(async (store) => {
    const refused = expect(verify(await withArchive(store))).rejects.toThrow(why);
    await fail(output, exitCode);
    await refused;
    const described = await cloud.engine.backups.describe(ID);
    expect(described.last_verification).toBeUndefined();
  }),
);

test('an object store that is away says nothing of the archive', async () => {
  const spec = await withArchive({ ...STORE, endpoint: 'https://127.0.0.1:1' });
  const refused = expect(verify(spec)).rejects.toThrow(/^the object store of the region does not/);
  await fail();
  await refused;
  expect((await cloud.engine.backups.describe(ID)).last_verification).toBeUndefined();
});

test('the next round removes the Cluster that a killed control plane has left', async () => {
  const spec = await withArchive(STORE);
  void verify(spec).catch(() => undefined);
  await until(async () => copy() !== undefined);
  const job = putJob(`v-${ID}-1-full-recovery-x`, 'Running');
  const next = cloud.openEngine();
  let isLeft = true;
  const rounds = until(async () => {
    await next.backups.keep(ID, { removes: false, quotaBytes: 1 });
    return !isLeft;
  });
  await until(async () => copy() === undefined);
  isLeft = false;
  cloud.fake.take(job);
  await rounds;
  await next.close();
});

test('pods of a recovery are no servers, and a removal waits for them', async () => {
  const spec = await withArchive(STORE);
  void verify(spec).catch(() => undefined);
  await until(async () => copy() !== undefined);
  putJob(`v-${ID}-1`, 'Running');
  await until(async () => {
    cloud.fake.take(`/api/v1${NAMESPACE}/pods/s-${ID}-1`);
    return !(await cloud.engine.lifecycle.runs(ID));
  });
  const verdict = await cloud.engine.lifecycle.remove(ID, null, async () => undefined);
  expect(verdict.outcome).toBe('again');
});

const textOf = (...lines: readonly object[]): string =>
  lines.map((line) => `${JSON.stringify(line)}\n`).join('');

test.each([
  [
    'a record of PostgreSQL',
    { msg: 'record', record: { error_severity: 'FATAL', message: FATAL } },
  ],
  ['a line of PostgreSQL', { msg: `2026-11-28 20:00:00.123 UTC [7] FATAL:  ${FATAL}` }],
])('the damage is the last FATAL message: %s', (_, line) => {
  const before = { msg: 'record', record: { error_severity: 'FATAL', message: 'an earlier one' } };
  const after = { msg: 'Error while restoring a backup', error: 'exit status 1' };
  expect(damageIn(textOf({ msg: 'Starting' }, before, line, after)).damage).toBe(FATAL);
  expect(damageIn(`psql: FATAL:  ${FATAL}\nends\n`)).toEqual({ damage: FATAL, text: 'ends' });
});

test('the plugin names a file that is missing', () => {
  const file = '000000010000000000000009';
  const line = {
    msg: 'restore error',
    error: `object storage or file not found ${file}: WAL not found`,
  };
  expect(damageIn(textOf(line, { msg: 'ending' })).damage).toBe(
    `the archive has no WAL file ${file}`,
  );
});

test.each([
  ['another error', textOf({ msg: 'no backup', error: 'secret s3-key not found' })],
  ['a full volume', textOf({ msg: 'FATAL:  could not write: No space left on device' })],
  ['a quota', textOf({ msg: `FATAL:  ${FATAL}` }, { msg: 'Disk quota exceeded' })],
  ['a session that came too early', 'FATAL:  the database system is starting up\n'],
  [
    'a session that came too late',
    textOf({
      record: { error_severity: 'FATAL', message: 'the database system is shutting down' },
    }),
  ],
  ['no output', ''],
  ['no record', '{"msg": 7}\n'],
])('nothing is said of the archive by %s', (_, output) => {
  expect(damageIn(output).damage).toBe(null);
});

test('control characters of a tenant are not shown, and long texts are cut', () => {
  const line = { msg: `FATAL:  a\u001b[31m${'x'.repeat(1000)}` };
  const { damage } = damageIn(textOf(line));
  expect(damage).toMatch(/^a \[31mxx/);
  expect(damage).toHaveLength(500);
});
