/** Where the pods of services run, and by which credentials their images are pulled. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Placement } from '@howdah/contract';
import { mayRun } from '../doctor-region.ts';
import {
  CLUSTER,
  clusterOf,
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

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(async () => cloud.close());

const fieldsOf = (path = CLUSTER) => Object(cloud.fake.objects.get(path)).spec;
const ANYWHERE = { enablePodAntiAffinity: true, podAntiAffinityType: 'preferred' };
const REGION: Placement = {
  node_selector: { pool: 'databases' },
  tolerations: [{ key: 'dedicated', value: 'databases', effect: 'NoSchedule' }, { key: 'spot' }],
  topology_spread: [{ topology_key: 'topology.kubernetes.io/zone', required: true }],
  priority_class: 'databases',
};

test('a Cluster has the nodes, the spread and the priority of its region', async () => {
  cloud.placed = { '': REGION };
  await untilStep(cloud, await newSpec(cloud), 'create Cluster');
  expect(fieldsOf()).toMatchObject({
    affinity: {
      ...ANYWHERE,
      nodeSelector: { pool: 'databases' },
      tolerations: [
        { key: 'dedicated', operator: 'Equal', value: 'databases', effect: 'NoSchedule' },
        { key: 'spot', operator: 'Exists' },
      ],
    },
    topologySpreadConstraints: [
      {
        topologyKey: 'topology.kubernetes.io/zone',
        maxSkew: 1,
        whenUnsatisfiable: 'DoNotSchedule',
        labelSelector: { matchLabels: { 'cnpg.io/cluster': `s-${ID}` } },
      },
    ],
    priorityClassName: 'databases',
  });
});

test('the fields of a service come before those of its region', async () => {
  cloud.placed = { '': REGION, [ID]: { node_selector: { pool: 'fast' }, topology_spread: [] } };
  await untilStep(cloud, await newSpec(cloud), 'create Cluster');
  expect(fieldsOf()).toMatchObject({
    affinity: { nodeSelector: { pool: 'fast' } },
    topologySpreadConstraints: [],
    priorityClassName: 'databases',
  });
});

test('another placement begins with the next start, of the pooler too', async () => {
  const spec = { ...(await newSpec(cloud)), pooler: { port: 30_002 } };
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'connect');
  cloud.placed = { '': REGION };
  cloud.imagePull = { config: '{"auths":{}}' };
  const larger = { ...spec, provisioned: true, storageGb: 20 };
  await untilStep(cloud, larger, 'grow volume');
  expect(fieldsOf()).toMatchObject({ storage: { size: '20G' }, affinity: ANYWHERE });
  expect(fieldsOf()).not.toHaveProperty('imagePullSecrets');
  await untilAwaited(cloud, { ...larger, restarts: 1 });
  expect(fieldsOf()).toMatchObject({
    priorityClassName: 'databases',
    imagePullSecrets: [{ name: 'howdah-registries-kube' }],
  });
});

test('a read replica set is placed as its service, unless it says otherwise', async () => {
  const parent = await newSpec(cloud);
  await untilStep(cloud, parent, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, parent, 'settled');
  cloud.placed = { '': REGION, [ID]: { node_selector: { pool: 'fast' } } };
  const id = 'fghij67890';
  const follows = { parent: ID, nodes: 1, purpose: 'lookups' } as const;
  const set = { ...parent, id, set: follows, firstVerifier: null };
  await untilStep(cloud, set, 'create Cluster');
  const path = clusterOf(id).replace(`s-${id}`, `r-${id}`);
  expect(fieldsOf(path)).toMatchObject({
    affinity: { nodeSelector: { pool: 'fast' } },
    priorityClassName: 'databases',
  });
});

test('other credentials of registries reach each namespace, and none are left', async () => {
  const secret = `/api/v1${NAMESPACE}/secrets/howdah-registries-kube`;
  const configIn = () => Object(cloud.fake.objects.get(secret)).data?.['.dockerconfigjson'];
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  cloud.imagePull = { config: 'one' };
  await untilStep(cloud, await newSpec(cloud), 'create Cluster');
  expect(configIn()).toBe(base64('one'));
  expect(fieldsOf()).toMatchObject({ imagePullSecrets: [{ name: 'howdah-registries-kube' }] });
  const roundOf = async (config: string | null) => {
    cloud.imagePull = config === null ? null : { config };
    await cloud.engine.close();
    cloud.engine = cloud.openEngine();
  };
  await roundOf('two');
  await until(async () => configIn() === base64('two'));
  await roundOf(null);
  await until(async () => configIn() === undefined);
});

test('WAL has a volume of its own, where that is named, which stays and grows', async () => {
  cloud.walStorageClass = 'fast';
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  expect(fieldsOf()).toMatchObject({ walStorage: { size: '5G', storageClass: 'fast' } });
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.walStorageClass = null;
  await untilStep(cloud, { ...spec, provisioned: true, storageGb: 20 }, 'grow volume');
  expect(fieldsOf()).toMatchObject({ walStorage: { size: '10G', storageClass: 'fast' } });
  expect(cloud.engine.lifecycle.whyNotForked(ID, 'LAST_SNAPSHOT')).toMatch(/its WAL has a volume/);
});

test('a service from before the class keeps its WAL with the data', async () => {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.walStorageClass = 'fast';
  await untilAwaited(cloud, { ...spec, provisioned: true, restarts: 1 });
  expect(fieldsOf()).not.toHaveProperty('walStorage');
});

test('a node may run a pod that has its labels and tolerates its taints', () => {
  const labels = { pool: 'databases' };
  const taints = [{ key: 'dedicated', value: 'databases', effect: 'NoSchedule' }];
  const node = { metadata: { labels }, spec: { taints } };
  expect(mayRun(node, REGION)).toBe(true);
  expect(mayRun(node, { node_selector: { pool: 'other' } })).toBe(false);
  expect(mayRun(node, {})).toBe(false);
  expect(mayRun(node, { tolerations: [{ key: 'dedicated', value: 'other' }] })).toBe(false);
  expect(mayRun(node, { tolerations: [{ key: 'dedicated', effect: 'NoExecute' }] })).toBe(false);
  expect(mayRun({ metadata: {}, spec: { unschedulable: true } }, {})).toBe(false);
});
