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
} from './engine.testing.ts';
import type { ServiceSpec } from '../spec.ts';
import { createKube } from './api/client.ts';
import { readKubeconfig } from './api/kubeconfig.ts';
import { examineCluster } from './doctor.ts';
import { saltOf } from './service/challenge.ts';

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
      'are no backups, and no forks of paused services',
  });
  addSnapshotClass(cloud);
  expect(await examine()).toEqual({
    what: 'volume snapshots',
    state: 'ok',
    found: 'class snap, backups and forks of paused services',
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
      recoveryTarget: { targetImmediate: true },
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
