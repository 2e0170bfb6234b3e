/** The objects of a cluster that the integrity check finds. */
import { expect, test } from 'vitest';
import { createKube } from '../api/client.ts';
import { readKubeconfig } from '../api/kubeconfig.ts';
import { startFakeKubernetes } from '../fake-kubernetes.testing.ts';
import { clusterAmiss } from './compare.ts';
import { idsOf } from './ids.testing.ts';
import { takeClusterInventory } from './inventory.ts';

const REGION = { code: 'kube', domain: null };

test('the snapshot that a fork is made of is the fork’s, whose labels its parent has', async () => {
  const fake = await startFakeKubernetes();
  const kube = createKube(readKubeconfig(fake.kubeconfig, null), () => true);
  try {
    const labels = { 'howdah.io/service': 'parent' };
    const path =
      '/apis/snapshot.storage.k8s.io/v1/namespaces/howdah-p/volumesnapshots/s-fork-online';
    fake.put(path, { metadata: { labels } });
    const found = await takeClusterInventory(kube);
    expect(clusterAmiss(REGION, [], idsOf(['fork']), found)).toEqual([]);
    expect(clusterAmiss(REGION, [], idsOf(['parent']), found)).toEqual([
      'left over: VolumeSnapshot howdah-p/s-fork-online: ' +
        'kubectl --namespace howdah-p delete volumesnapshots.snapshot.storage.k8s.io s-fork-online',
    ]);
  } finally {
    kube.close();
    await fake.close();
  }
});

test('an ObjectStore and a record that a service has left are found', async () => {
  const fake = await startFakeKubernetes();
  const kube = createKube(readKubeconfig(fake.kubeconfig, null), () => true);
  try {
    const labels = { 'howdah.io/service': 'xyz' };
    const path = '/apis/barmancloud.cnpg.io/v1/namespaces/howdah-p/objectstores/s-xyz';
    fake.put(path, { metadata: { labels } });
    fake.put('/api/v1/namespaces/howdah-p/configmaps/s-xyz-archived', { metadata: { labels } });
    const found = await takeClusterInventory(kube);
    expect(clusterAmiss(REGION, [], idsOf([]), found)).toEqual([
      'left over: ObjectStore howdah-p/s-xyz: ' +
        'kubectl --namespace howdah-p delete objectstores.barmancloud.cnpg.io s-xyz',
      'left over: ConfigMap howdah-p/s-xyz-archived: ' +
        'kubectl --namespace howdah-p delete configmaps s-xyz-archived',
    ]);
    expect(clusterAmiss(REGION, [], idsOf(['xyz']), found)).toEqual([]);
  } finally {
    kube.close();
    await fake.close();
  }
});

test('fields of a Cluster that others have set are found, with their values', async () => {
  const fake = await startFakeKubernetes();
  const kube = createKube(readKubeconfig(fake.kubeconfig, null), () => true);
  const managed = (manager: string, spec: object, subresource?: string) => ({
    manager,
    fieldsV1: { 'f:spec': spec },
    ...(subresource === undefined ? {} : { subresource }),
  });
  const parameters = { 'f:parameters': { '.': {}, 'f:work_mem': {} } };
  try {
    fake.put('/apis/postgresql.cnpg.io/v1/namespaces/howdah-p/clusters/s-xyz', {
      metadata: {
        labels: { 'howdah.io/service': 'xyz' },
        uid: 'u',
        managedFields: [
          managed('howdah', { 'f:instances': {} }),
          managed('howdah-state', { 'f:instances': {} }),
          managed('manager', { 'f:instances': {} }, 'status'),
          managed('kubectl-edit', { 'f:instances': {}, 'f:postgresql': parameters }),
          managed('tool', { 'f:env': {}, 'f:imageName': {}, 'f:logLevel': {} }),
        ],
      },
      spec: {
        instances: 2,
        postgresql: { parameters: { work_mem: '64MB' } },
        env: [{ name: 'PGPASSWORD', value: 'secret' }],
        imageName: 'x'.repeat(60),
      },
    });
    const { clusters } = await takeClusterInventory(kube);
    expect(clusters.flatMap(({ changes }) => changes)).toEqual([
      'kubectl-edit has set spec.instances: 2, spec.postgresql.parameters.work_mem: "64MB"',
      `tool has set spec.env: a list or an object, spec.imageName: "${'x'.repeat(59)}…, ` +
        'spec.logLevel: absent',
    ]);
  } finally {
    kube.close();
    await fake.close();
  }
});
