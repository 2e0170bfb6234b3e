import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  clusterOf,
  ID,
  newSpec,
  openCloud,
  runServers,
  until,
  untilAwaited,
  untilStep,
  type Cloud,
} from './engine.testing.ts';
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
