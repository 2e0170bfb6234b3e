/** The objects of a cluster that the integrity check finds. */
import { expect, test } from 'vitest';
import { createKube } from '../api/client.ts';
import { readKubeconfig } from '../api/kubeconfig.ts';
import { startFakeKubernetes } from '../fake-kubernetes.testing.ts';
import { clusterAmiss } from './compare.ts';
import { takeClusterInventory } from './inventory.ts';

test('an ObjectStore that a service has left is found', async () => {
  const fake = await startFakeKubernetes();
  const kube = createKube(readKubeconfig(fake.kubeconfig, null), () => true);
  try {
    const labels = { 'howdah.io/service': 'xyz' };
    const path = '/apis/barmancloud.cnpg.io/v1/namespaces/howdah-p/objectstores/s-xyz';
    fake.put(path, { metadata: { labels } });
    const found = await takeClusterInventory(kube);
    expect(clusterAmiss('kube', [], new Set(), found)).toEqual([
      'left over: ObjectStore howdah-p/s-xyz: ' +
        'kubectl --namespace howdah-p delete objectstores.barmancloud.cnpg.io s-xyz',
    ]);
    expect(clusterAmiss('kube', [], new Set(['xyz']), found)).toEqual([]);
  } finally {
    kube.close();
    await fake.close();
  }
});
