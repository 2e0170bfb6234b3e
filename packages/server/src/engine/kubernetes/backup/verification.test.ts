import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { RunStep } from '../../run-step.ts';
import type { ServiceSpec } from '../../spec.ts';
import {
  ID,
  NAMESPACE,
  newSpec,
  openCloud,
  runServers,
  until,
  untilAwaited,
  untilRemoved,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

const POD = `/api/v1${NAMESPACE}/pods/s-${ID}-verification`;
const BACKUP = `/apis/postgresql.cnpg.io/v1${NAMESPACE}/backups/s-${ID}-20260101000000`;
const TAKEN = '2026-01-01T00:00:00.000Z';

/** A running service with a snapshot. */
async function withSnapshot(): Promise<ServiceSpec> {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.fake.put(BACKUP, {
    metadata: {
      creationTimestamp: TAKEN,
      labels: { 'howdah.io/service': ID, 'howdah.io/region': 'kube' },
    },
    spec: { cluster: { name: `s-${ID}` }, method: 'volumeSnapshot' },
    status: {
      phase: 'completed',
      snapshotBackupStatus: { elements: [{ name: 'snapshot-of-it', type: 'PG_DATA' }] },
    },
  });
  await until(async () => (await cloud.engine.backups.describe(ID)).snapshots.length === 1);
  return spec;
}

const steps: string[] = [];
const runStep: RunStep = async (name, work) => {
  const detail = await work(() => undefined);
  steps.push(`${name}: ${detail}`);
};

const verify = (spec: ServiceSpec, signal = new AbortController().signal) => {
  steps.length = 0;
  return cloud.engine.backups.verify(spec, runStep, signal);
};

const pod = () => cloud.fake.objects.get(POD);
const line = (step: string, state: string, detail: string): string =>
  `${step} ${state} ${Buffer.from(detail).toString('base64')}\n`;

/** Has the pod run, with this output. */
async function run(output: string, phase = 'Running'): Promise<void> {
  await until(async () => pod() !== undefined);
  cloud.fake.logs.set(POD, { output: output.split('\n').map((text) => [0, text]) });
  cloud.fake.put(POD, { ...pod(), status: { phase } });
}

const GOOD =
  line('restore', 'ok', '61 MB') + line('replay', 'ok', 'accepting connections, PostgreSQL 17.6');

test('a snapshot is verified by a pod of its own, which is removed', async () => {
  const spec = await withSnapshot();
  const verifying = verify(spec);
  await run(GOOD);
  expect(pod()).toMatchObject({
    metadata: { ownerReferences: [{ kind: 'Cluster', name: `s-${ID}` }] },
    spec: {
      restartPolicy: 'Never',
      automountServiceAccountToken: false,
      containers: [{ image: 'postgres:17', securityContext: { capabilities: { drop: ['ALL'] } } }],
    },
  });
  // A tenant's settings of a database must not end a check.
  const options = expect.stringContaining('-c role=none -c statement_timeout=0');
  expect(Object(pod()).spec.containers[0].env).toContainEqual({
    name: 'PGOPTIONS',
    value: options,
  });
  const [volume] = Object(pod()).spec.volumes;
  expect(volume.ephemeral.volumeClaimTemplate.spec).toMatchObject({
    resources: { requests: { storage: '10G' } },
    dataSource: { kind: 'VolumeSnapshot', name: 'snapshot-of-it' },
  });
  await until(async () => steps.length === 2);
  const rest =
    line('relations', 'ok', '9 tables') +
    line('rows', 'ok', '100 rows in 3 tables of 2 databases') +
    line('pages', 'ok', '5 pages in 4 files');
  await run(GOOD + rest, 'Succeeded');
  const { verification, restored } = await verifying;
  expect(steps).toEqual([
    `restore snapshot: that of ${TAKEN}: 61 MB`,
    'replay WAL: accepting connections, PostgreSQL 17.6',
    'check tables and indexes: 9 tables',
    'count rows: 100 rows in 3 tables of 2 databases',
    'check page checksums: 5 pages in 4 files',
  ]);
  expect(verification).toMatchObject({ succeeded: true, recovery_point: TAKEN });
  expect(restored).toMatchObject({
    backup: { place: 'snapshot', repository: null, taken: expect.any(String) },
    postgresql_version: '17.6',
    contents: { databases: 2, tables: 3, rows: 100, uncounted_tables: 0 },
    pages: { pages: 5, files: 4 },
  });
  expect(pod()).toBeUndefined();
  const described = await cloud.engine.backups.describe(ID);
  expect(described.last_verification).toEqual(verification);
  expect(described.snapshots).toMatchObject([{ verification }]);
});

test('a damaged snapshot is a result, and its service goes on', async () => {
  const spec = await withSnapshot();
  const verifying = verify(spec);
  await run(GOOD + line('relations', 'failed', 'index t_x: invalid page'), 'Succeeded');
  const { verification, restored } = await verifying;
  expect(restored).toBeNull();
  expect(verification).toMatchObject({
    succeeded: false,
    problem: 'check tables and indexes: index t_x: invalid page',
  });
  expect((await cloud.engine.backups.describe(ID)).last_verification).toEqual(verification);
  expect(pod()).toBeUndefined();
});

test.each([
  ['it was killed', line('replay', 'error', 'its server was killed'), 'its server was killed'],
  ['it has ended too early', '', 'has ended too early'],
])('a snapshot that was not examined has no result: %s', async (_, more, why) => {
  const spec = await withSnapshot();
  const verifying = verify(spec);
  const refused = expect(verifying).rejects.toThrow(why);
  await run(line('restore', 'ok', '61 MB') + more, 'Failed');
  await refused;
  expect((await cloud.engine.backups.describe(ID)).last_verification).toBeUndefined();
  expect(pod()).toBeUndefined();
});

test('a pod that somebody removes ends the verification', async () => {
  const spec = await withSnapshot();
  const refused = expect(verify(spec)).rejects.toThrow('somebody has removed the pod');
  await run(line('restore', 'ok', '61 MB'));
  await until(async () => steps.length === 1);
  cloud.fake.take(POD);
  await refused;
});

test('a verification ends with its signal, and a service without a backup has none', async () => {
  const spec = await withSnapshot();
  const [controller, reason] = [new AbortController(), new Error('it is removed')];
  const refused = expect(verify(spec, controller.signal)).rejects.toThrow(reason);
  await run(line('restore', 'ok', '61 MB'));
  controller.abort(reason);
  await refused;
  expect(pod()).toBeUndefined();
  cloud.fake.take(BACKUP);
  await until(async () => (await cloud.engine.backups.describe(ID)).snapshots.length === 0);
  await expect(verify(spec)).rejects.toThrow('it has no backup yet');
});

test('the pod of a control plane that was killed is removed, by the next round too', async () => {
  const spec = await withSnapshot();
  void verify(spec).catch(() => undefined);
  await run(line('restore', 'ok', '61 MB'));
  const next = cloud.openEngine();
  // The next engine knows the pod once it has listed them.
  await until(async () => {
    await next.backups.keep(ID, { removes: false, quotaBytes: 1 });
    return pod() === undefined;
  });
  await next.close();
});

test('the pod of a verification is one that a removal waits for', async () => {
  const spec = await withSnapshot();
  void verify(spec).catch(() => undefined);
  await run(line('restore', 'ok', '61 MB'));
  cloud.fake.take(`/api/v1${NAMESPACE}/pods/s-${ID}-1`);
  let detail: string | null = null;
  for (; detail !== 'its pods are ending'; await sleep(5)) {
    const verdict = await cloud.engine.lifecycle.remove(ID, null, async () => undefined);
    if (verdict.outcome === 'settled') throw new Error('it did not wait for the pod');
    ({ detail } = verdict);
  }
  cloud.fake.take(POD);
  await untilRemoved(cloud);
});
