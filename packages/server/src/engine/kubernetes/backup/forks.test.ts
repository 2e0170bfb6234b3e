import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  clusterOf,
  ID,
  NAMESPACE,
  newSpec,
  openCloud,
  POD,
  runServers,
  stopServers,
  until,
  untilAwaited,
  untilRemoved,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import type { ServiceSpec } from '../../spec.ts';
import { createKube } from '../api/client.ts';
import { readKubeconfig } from '../api/kubeconfig.ts';
import { examineCluster } from '../doctor.ts';
import { saltOf } from '../network/challenge.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

test('a fork copies its parent, and is reachable once it has its own password', async () => {
  const spec = await newSpec(cloud);
  const origin = { parent: ID, strategy: 'NOW', targetTime: null } as const;
  const fork = await newSpec(cloud, { id: 'fork123456', size: 'shared', origin });
  const why = async () => {
    const verdict = await cloud.engine.lifecycle.converge(fork, async () => undefined);
    return verdict.outcome === 'again' ? verdict.detail : verdict.outcome;
  };
  await until(
    async () => (await why()) === `its parent ${ID} has no Cluster any more; delete the fork`,
  );
  await untilAwaited(cloud, spec);
  expect(cloud.engine.lifecycle.whyNotForked(ID, 'NOW')).toBeNull();
  const steps = ['create Cluster', 'start PostgreSQL', 'detach from parent', 'connect'];
  expect(cloud.engine.lifecycle.plan('fork', fork, false, fork.size)).toEqual(steps);
  await untilAwaited(cloud, fork);
  const clusterSpec = () => Object(cloud.fake.objects.get(clusterOf(fork.id))).spec;
  const secret = { name: `s-${fork.id}-password` };
  expect(clusterSpec()).toMatchObject({
    instances: 1,
    bootstrap: {
      pg_basebackup: { source: `s-${ID}`, database: 'tsdb', owner: 'tsdbadmin', secret },
    },
    externalClusters: [
      {
        name: `s-${ID}`,
        connectionParameters: {
          host: `s-${ID}-rw`,
          user: 'streaming_replica',
          sslmode: 'verify-full',
          tcp_user_timeout: '5000',
        },
        sslKey: { name: `s-${ID}-replication`, key: 'tls.key' },
        sslCert: { name: `s-${ID}-replication`, key: 'tls.crt' },
        sslRootCert: { name: 'howdah-ca', key: 'ca.crt' },
      },
    ],
  });
  runServers(cloud, 1, 1, fork.id);
  await untilStep(cloud, fork, 'start PostgreSQL');
  cloud.answer = { salt: 'c2FsdA==' };
  await untilStep(cloud, fork, 'detach from parent');
  expect(JSON.stringify(clusterSpec())).not.toContain(ID);
  expect(clusterSpec().bootstrap).toMatchObject({ initdb: { secret } });
  await until(async () => (await why())?.includes('has not set its password yet') === true);
  cloud.answer = { salt: saltOf(fork.firstVerifier ?? '') ?? '' };
  expect(await untilStep(cloud, fork, 'settled')).toEqual(['connect']);
  await untilAwaited(cloud, { ...spec, provisioned: true, power: 'paused' });
  expect(cloud.engine.lifecycle.whyNotForked(ID, 'NOW')).toContain('the service is PAUSED');
});

/** A class for snapshots of the volumes of the default storage class. */
function addSnapshotClass({ fake }: Cloud, deletionPolicy = 'Delete'): void {
  const annotations = { 'storageclass.kubernetes.io/is-default-class': 'true' };
  fake.put('/apis/storage.k8s.io/v1/storageclasses/fast', {
    metadata: { annotations },
    provisioner: 'example.com/fast',
  });
  for (const [name, driver] of [
    ['other', 'example.com/slow'],
    ['snap', 'example.com/fast'],
  ])
    fake.put(`/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/${name}`, {
      driver,
      deletionPolicy,
    });
}

/** A service that was stopped, and a fork of it. */
async function pausedParent(): Promise<ServiceSpec> {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  const paused = { ...spec, provisioned: true, power: 'paused' } as const;
  await untilAwaited(cloud, paused);
  stopServers(cloud);
  await untilStep(cloud, paused, 'settled');
  const origin = { parent: ID, strategy: 'NOW', targetTime: null } as const;
  return newSpec(cloud, { id: 'fork123456', size: 'shared', origin });
}

const SNAPSHOT =
  '/apis/snapshot.storage.k8s.io/v1' + NAMESPACE + '/volumesnapshots/s-fork123456-origin';

/** Another engine, which has read the classes. */
async function reopen(): Promise<void> {
  await cloud.engine.close();
  cloud.engine = cloud.openEngine();
}

test('a fork of a paused service is made of a snapshot, and nothing is left of that', async () => {
  addSnapshotClass(cloud);
  await reopen();
  const fork = await pausedParent();
  await until(async () => cloud.engine.lifecycle.whyNotForked(ID, 'NOW') === null);
  expect(cloud.engine.lifecycle.plan('fork', fork, false, fork.size)).toEqual([
    'take snapshot',
    'create Cluster',
    'start PostgreSQL',
    'detach from parent',
    'connect',
  ]);
  const why = async () => {
    const verdict = await cloud.engine.lifecycle.converge(fork, async () => undefined);
    return verdict.outcome === 'again' ? verdict.detail : verdict.outcome;
  };
  await until(async () => (await why()) === 'it is being taken');
  expect(cloud.fake.objects.get(SNAPSHOT)).toMatchObject({
    metadata: { labels: { 'howdah.io/service': fork.id } },
    spec: {
      volumeSnapshotClassName: 'snap',
      source: { persistentVolumeClaimName: `s-${ID}-1` },
    },
  });
  await reopen();
  const snapshot = cloud.fake.objects.get(SNAPSHOT);
  cloud.fake.put(SNAPSHOT, { ...snapshot, status: { readyToUse: true } });
  expect(await untilStep(cloud, fork, 'create Cluster')).toEqual([
    'take snapshot',
    'create Cluster',
  ]);
  const cluster = () => Object(cloud.fake.objects.get(clusterOf(fork.id)));
  const apiGroup = 'snapshot.storage.k8s.io';
  expect(cluster().spec.bootstrap).toEqual({
    recovery: {
      volumeSnapshots: {
        storage: { apiGroup, kind: 'VolumeSnapshot', name: 's-fork123456-origin' },
      },
      database: 'tsdb',
      owner: 'tsdbadmin',
      secret: { name: `s-${fork.id}-password` },
    },
  });
  expect(cluster().spec.externalClusters).toBeUndefined();
  expect(cloud.fake.objects.get(SNAPSHOT)?.metadata).toMatchObject({
    ownerReferences: [{ kind: 'Cluster', name: `s-${fork.id}`, uid: cluster().metadata.uid }],
  });
  await untilAwaited(cloud, fork);
  runServers(cloud, 1, 1, fork.id);
  await untilStep(cloud, fork, 'detach from parent');
  expect(cloud.fake.objects.has(SNAPSHOT)).toBe(false);
  expect(cluster().spec.bootstrap.recovery).toBeUndefined();
});

const BACKUP = '/apis/postgresql.cnpg.io/v1' + NAMESPACE + '/backups/s-fork123456-online';
/** The snapshot of that backup, with the labels of the parent's volume. */
const ONLINE = SNAPSHOT.replace('origin', 'online');

/** A service that runs in a region with snapshots, and a fork of it. */
async function runningParent(): Promise<Readonly<{ spec: ServiceSpec; fork: ServiceSpec }>> {
  addSnapshotClass(cloud);
  await reopen();
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  const origin = { parent: ID, strategy: 'NOW', targetTime: null } as const;
  return { spec, fork: await newSpec(cloud, { id: 'fork123456', size: 'shared', origin }) };
}

/** Makes steps until the operator has to back the parent up. */
const untilBackUp = (fork: ServiceSpec): Promise<void> =>
  until(async () => {
    await cloud.engine.lifecycle.converge(fork, async () => undefined);
    return cloud.fake.objects.has(BACKUP);
  });

/** Acts as the operator. */
function endBackup(status: object): void {
  cloud.fake.put(BACKUP, { ...cloud.fake.objects.get(BACKUP), status });
  cloud.fake.put(ONLINE, {
    metadata: { labels: { 'howdah.io/service': ID, 'cnpg.io/backupName': 's-fork123456-online' } },
    status: { readyToUse: true },
  });
}
const elements = [{ name: 's-fork123456-online', type: 'PG_DATA' }];
const instanceID = { podName: `s-${ID}-1` };
const COMPLETED = { phase: 'completed', instanceID, snapshotBackupStatus: { elements } };

test('a fork of a running service is made of a backup, and nothing is left of that', async () => {
  const { spec, fork } = await runningParent();
  const { lifecycle } = cloud.engine;
  const steps = ['take snapshot', 'create Cluster', 'start PostgreSQL', 'detach from parent'];
  expect(lifecycle.plan('fork', fork, false, fork.size)).toEqual([...steps, 'connect']);
  await untilBackUp(fork);
  expect(cloud.fake.objects.get(BACKUP)).toMatchObject({
    metadata: { labels: { 'howdah.io/service': fork.id, 'howdah.io/region': 'kube' } },
    spec: { cluster: { name: `s-${ID}` }, method: 'volumeSnapshot' },
  });
  endBackup(COMPLETED);
  await reopen();
  const { backups } = cloud.engine;
  expect(await untilStep(cloud, fork, 'create Cluster')).toEqual(steps.slice(0, 2));
  const cluster = () => Object(cloud.fake.objects.get(clusterOf(fork.id)));
  expect(cluster().spec.bootstrap.recovery.volumeSnapshots.storage.name).toBe(
    's-fork123456-online',
  );
  expect(cloud.fake.objects.get(BACKUP)?.metadata).toMatchObject({
    ownerReferences: [{ kind: 'Cluster', name: `s-${fork.id}`, uid: cluster().metadata.uid }],
  });
  for (const id of [ID, fork.id]) expect((await backups.describe(id)).snapshots).toEqual([]);
  expect(cloud.engine.lifecycle.whyNotForked(ID, 'LAST_SNAPSHOT')).toContain('no snapshot yet');
  // The parent goes, and what the fork is made of stays.
  cloud.fake.take(POD);
  await untilRemoved(cloud, spec.id);
  expect([BACKUP, ONLINE].map((path) => cloud.fake.objects.has(path))).toEqual([true, true]);
  await untilAwaited(cloud, fork);
  runServers(cloud, 1, 1, fork.id);
  await untilStep(cloud, fork, 'detach from parent');
  expect([BACKUP, ONLINE].map((path) => cloud.fake.objects.has(path))).toEqual([false, false]);
});

test('a fork is copied if the backup of its parent fails, and leaves none', async () => {
  const { fork } = await runningParent();
  await untilBackUp(fork);
  endBackup({ phase: 'failed', error: 'no room' });
  const details: (string | null)[] = [];
  await until(async () => {
    const { did, detail } = await cloud.engine.lifecycle.converge(fork, async () => undefined);
    if (did !== null) details.push(detail);
    return did === 'create Cluster';
  });
  expect(details).toEqual([
    `none of ${ID}, which is copied if it runs: no room`,
    `PostgreSQL 17 with the data of ${ID}, which is copied without a snapshot: no room`,
  ]);
  const { bootstrap } = Object(cloud.fake.objects.get(clusterOf(fork.id))).spec;
  expect(bootstrap).toMatchObject({ pg_basebackup: { source: `s-${ID}` } });
  expect(await cloud.engine.observe.warnings(fork.id)).toEqual([]);
  // A backup that does not end would hold up those of the parent.
  await cloud.engine.lifecycle.converge(fork, async () => undefined);
  expect([BACKUP, ONLINE].map((path) => cloud.fake.objects.has(path))).toEqual([false, false]);
});

test('a backup that does not end is given up, and one that cannot begin is not taken', async () => {
  const { fork } = await runningParent();
  await untilBackUp(fork);
  const asked = cloud.fake.objects.get(BACKUP);
  const creationTimestamp = new Date(Date.now() - 3_600_000).toISOString();
  cloud.fake.put(BACKUP, { ...asked, metadata: { ...asked?.metadata, creationTimestamp } });
  const steps = await untilStep(cloud, fork, 'create Cluster');
  expect(steps).toEqual(['take snapshot', 'create Cluster']);
  await untilRemoved(cloud, fork.id);
  expect(cloud.fake.objects.has(BACKUP)).toBe(false);
  // CloudNativePG takes one backup at a time, and a base backup may take hours.
  putBaseBackup(creationTimestamp);
  await until(async () => {
    const plan = cloud.engine.lifecycle.plan('fork', fork, false, fork.size);
    return plan[0] === 'create Cluster';
  });
  expect(await untilStep(cloud, fork, 'create Cluster')).toEqual(['create Cluster']);
});

test('a fork waits for a base backup that has just begun, as that of a new service', async () => {
  const { fork } = await runningParent();
  const plan = () => cloud.engine.lifecycle.plan('fork', fork, false, fork.size);
  // Each is seen by its effect: that of an older one first.
  putBaseBackup(new Date(Date.now() - 600_000).toISOString());
  await until(async () => plan()[0] === 'create Cluster');
  putBaseBackup(new Date().toISOString());
  await until(async () => plan()[0] !== 'create Cluster');
  await untilBackUp(fork);
  expect(cloud.fake.objects.has(BACKUP)).toBe(true);
});

function putBaseBackup(creationTimestamp: string): void {
  cloud.fake.put(BACKUP.replace('fork123456-online', `${ID}-1-base`), {
    metadata: {
      labels: { 'howdah.io/service': ID, 'howdah.io/region': 'kube' },
      creationTimestamp,
    },
    spec: { cluster: { name: `s-${ID}` }, method: 'plugin' },
  });
}

test('a fork that is removed while its parent is backed up leaves nothing', async () => {
  const { fork } = await runningParent();
  await untilBackUp(fork);
  endBackup({ phase: 'started' });
  await untilRemoved(cloud, fork.id);
  expect([BACKUP, ONLINE].map((path) => cloud.fake.objects.has(path))).toEqual([false, false]);
});

test('a fork that is removed while its snapshot is taken leaves none', async () => {
  addSnapshotClass(cloud);
  await reopen();
  const fork = await pausedParent();
  await until(async () => cloud.engine.lifecycle.whyNotForked(ID, 'NOW') === null);
  await until(async () => {
    await cloud.engine.lifecycle.converge(fork, async () => undefined);
    return cloud.fake.objects.has(SNAPSHOT);
  });
  await untilRemoved(cloud, fork.id);
  expect(cloud.fake.objects.has(SNAPSHOT)).toBe(false);
});

test('a class that keeps what is deleted is not used', async () => {
  addSnapshotClass(cloud, 'Retain');
  await reopen();
  const fork = await pausedParent();
  expect(cloud.engine.lifecycle.whyNotForked(ID, 'NOW')).toContain('start it first');
  const verdict = await cloud.engine.lifecycle.converge(fork, async () => undefined);
  expect(verdict).toMatchObject({ detail: expect.stringContaining('does not run') });
  const kube = createKube(readKubeconfig(cloud.fake.kubeconfig, null));
  const examine = async () =>
    (await examineCluster(kube, null, 'howdah-kube')).find(
      ({ what }) => what === 'volume snapshots',
    );
  expect(await examine()).toMatchObject({
    state: 'note',
    found:
      'there is no VolumeSnapshotClass for the driver example.com/fast that deletes, so there ' +
      'are no backups and no forks of paused services, and forks of running ones copy all data',
  });
  addSnapshotClass(cloud);
  expect(await examine()).toEqual({
    what: 'volume snapshots',
    state: 'ok',
    found: expect.stringMatching(/^class snap, for backups and forks; .* of one moment/),
  });
  kube.close();
});

test('backups are taken, listed, forked and removed', async () => {
  addSnapshotClass(cloud);
  await reopen();
  const { backups, lifecycle } = cloud.engine;
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  expect(Object(cloud.fake.objects.get(clusterOf(ID))).spec.backup).toEqual({
    target: 'primary',
    volumeSnapshot: {
      className: 'snap',
      online: true,
      onlineConfiguration: { immediateCheckpoint: true, waitForArchive: false },
      snapshotOwnerReference: 'backup',
    },
  });
  expect(lifecycle.whyNotForked(ID, 'LAST_SNAPSHOT')).toContain('no snapshot yet');
  const paths = () => [...cloud.fake.objects.keys()].filter((path) => path.includes('/backups/'));
  const keep = { removes: true, quotaBytes: 1e9 };
  const keeping = backups.keep(ID, keep);
  await until(async () => paths().length === 1);
  const [path = ''] = paths();
  const name = path.slice(path.lastIndexOf('/') + 1);
  const taken = cloud.fake.objects.get(path);
  expect(taken).toMatchObject({
    metadata: {
      labels: { 'howdah.io/service': ID, 'howdah.io/region': 'kube' },
      ownerReferences: [{ kind: 'Cluster', name: `s-${ID}`, uid: clusterOf(ID) }],
    },
    spec: { cluster: { name: `s-${ID}` }, method: 'volumeSnapshot' },
  });
  cloud.fake.put(path, {
    ...taken,
    status: {
      phase: 'completed',
      snapshotBackupStatus: { elements: [{ name: 'snapshot-of-it', type: 'PG_DATA' }] },
    },
  });
  expect(await keeping).toBe(false);
  expect(await backups.keep(ID, keep)).toBe(false);
  expect(paths()).toEqual([path]);
  expect(await backups.describe(ID)).toMatchObject({
    window: { earliest: null, latest: null, days: 7 },
    snapshots: [{ id: name, kind: 'scheduled', storage_mb: 10_000 }],
    problem: null,
  });
  expect(lifecycle.whyNotForked(ID, 'LAST_SNAPSHOT')).toBeNull();
  const origin = { parent: ID, strategy: 'LAST_SNAPSHOT', targetTime: null } as const;
  const fork = await newSpec(cloud, { id: 'fork123456', size: 'shared', origin });
  await untilAwaited(cloud, fork);
  expect(Object(cloud.fake.objects.get(clusterOf(fork.id))).spec.bootstrap).toMatchObject({
    recovery: {
      volumeSnapshots: { storage: { kind: 'VolumeSnapshot', name: 'snapshot-of-it' } },
    },
  });
  // A class that is gone for a moment changes no Cluster.
  cloud.fake.take('/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/snap');
  await reopen();
  expect(await untilStep(cloud, spec, 'settled')).toEqual(['connect']);
  cloud.fake.take(POD);
  await untilRemoved(cloud);
  expect(paths()).toEqual([]);
});
