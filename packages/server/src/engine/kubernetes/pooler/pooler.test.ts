import { expect, test } from 'vitest';
import { makeAuthority } from '../../../lib/tls.ts';
import {
  ID,
  NAMESPACE,
  newSpec,
  openCloud,
  runServers,
  until,
  untilAwaited,
  untilStep,
} from '../engine.testing.ts';

const POOLER = `/apis/apps/v1${NAMESPACE}/deployments/s-${ID}-pooler`;

test('a pooler gets other networks although its server cannot be asked for anything', async () => {
  const cloud = await openCloud();
  try {
    const spec = await newSpec(cloud);
    await untilAwaited(cloud, spec);
    runServers(cloud);
    await untilStep(cloud, spec, 'settled');
    const { certificatePem, keyPem } = await makeAuthority();
    cloud.fake.put(`/api/v1${NAMESPACE}/secrets/s-${ID}-ca`, {
      data: {
        'ca.crt': Buffer.from(certificatePem).toString('base64'),
        'ca.key': Buffer.from(keyPem).toString('base64'),
      },
    });
    const labels = { 'howdah.io/pooler': `s-${ID}`, 'howdah.io/region': 'kube' };
    cloud.fake.put(POOLER, { metadata: { labels }, spec: { replicas: 1 } });
    const pooled = { ...spec, provisioned: true, pooler: { port: 30_002 } };
    const written = () => JSON.stringify(cloud.fake.objects.get(POOLER));
    await until(async () => {
      await cloud.engine.lifecycle.converge(pooled, async () => undefined);
      return written().includes('all  0.0.0.0/0  scram-sha-256');
    });
    // All sessions of the control plane are refused.
    cloud.answer = { sqlstate: '53300', message: 'sorry, too many clients already' };
    const limited = { ...pooled, allowedNetworks: ['192.0.2.0/24'] };
    await untilStep(cloud, limited, 'write configuration');
    expect(written()).toContain('all  192.0.2.0/24  scram-sha-256');
    expect(written()).not.toContain('all  0.0.0.0/0  scram-sha-256');
  } finally {
    await cloud.close();
  }
});
