/**
 * Each contradiction between a cluster and the metadata database, and none of a cluster as it must
 * be.
 */
import { expect, test } from 'vitest';
import { KINDS } from '../api/kinds.ts';
import { clusterState } from '../cluster/state.ts';
import { clusterAmiss, type Recorded } from './compare.ts';
import { idsOf } from './ids.testing.ts';
import type { ClusterInventory, FoundCluster } from './inventory.ts';

const REGION = { code: 'kube', domain: null };
const SERVICE: Recorded = {
  id: 'abc',
  projectId: 'project',
  status: 'READY',
  isSettled: true,
  provisioning: false,
  port: 30001,
  pooler: false,
  poolerPort: 30002,
};
const NAMESPACE = 'howdah-project';
const METADATA = { name: 's-abc', namespace: NAMESPACE, uid: '1', resourceVersion: '1' };

function cluster(changes: Partial<FoundCluster> = {}): FoundCluster {
  return {
    kind: KINDS.cluster,
    namespace: NAMESPACE,
    name: 's-abc',
    id: 'abc',
    region: 'kube',
    state: clusterState({ metadata: METADATA, spec: { instances: 1 } }),
    changes: [],
    ...changes,
  };
}

const SERVER = { kind: KINDS.pod, namespace: NAMESPACE, name: 's-abc-1', id: 'abc' };
const POOLER = {
  kind: KINDS.deployment,
  namespace: NAMESPACE,
  name: 's-abc-pooler',
  id: 'abc',
  isWanted: true,
};
const SECRET = { kind: KINDS.secret, namespace: NAMESPACE, name: 's-abc-password', id: 'abc' };
const PORT = { port: 30001, namespace: NAMESPACE, name: 's-abc-endpoint' };

const RIGHT: ClusterInventory = {
  clusters: [cluster()],
  servers: [SERVER],
  poolers: [],
  ports: [PORT],
  routes: [],
  parts: [SECRET],
};

const amiss = (found: Partial<ClusterInventory>, service: Partial<Recorded> = {}): string[] =>
  clusterAmiss(REGION, [{ ...SERVICE, ...service }], idsOf(['abc']), {
    ...RIGHT,
    ...found,
  });

const stateWith = (changes: Partial<FoundCluster['state']>) =>
  cluster({ state: { ...cluster().state, ...changes } });

test('a cluster as it must be has no findings', () => {
  expect(amiss({})).toEqual([]);
  const paused = { clusters: [stateWith({ hibernated: true })], servers: [], ports: [] };
  expect(amiss(paused, { status: 'PAUSED', pooler: true })).toEqual([]);
  // A stop that could not wait for CloudNativePG.
  expect(amiss({ clusters: [stateWith({ fenced: true })] }, { status: 'PAUSED' })).toEqual([]);
  expect(amiss({ clusters: [], parts: [] }, { provisioning: true })).toEqual([]);
  expect(amiss({ clusters: [], servers: [] }, { isSettled: false })).toEqual([]);
  const pooled = { poolers: [POOLER], ports: [PORT, { ...PORT, port: 30002 }] };
  expect(amiss(pooled, { pooler: true })).toEqual([]);
});

test.each<[string, Partial<ClusterInventory>, Partial<Recorded>, string]>([
  ['no Cluster', { clusters: [] }, {}, 'service abc is READY and has no Cluster'],
  ['no server', { servers: [] }, {}, 'service abc is READY and no server of it runs'],
  [
    'a stopped Cluster',
    { clusters: [stateWith({ hibernated: true })] },
    {},
    'service abc is READY and its Cluster is stopped',
  ],
  [
    'a fenced Cluster',
    { clusters: [stateWith({ fenced: true })] },
    {},
    'service abc is READY and its Cluster is stopped',
  ],
  ['a server', {}, { status: 'PAUSED' }, 'service abc is PAUSED and 1 of its servers run'],
  ['a pooler', { poolers: [POOLER] }, {}, 'service abc is READY and its pooler runs'],
  [
    'no pooler',
    { ports: [PORT, { ...PORT, port: 30002 }] },
    { pooler: true },
    'service abc is READY and its pooler does not run',
  ],
  ['no port', { ports: [] }, {}, 'service abc is READY and no Service has its port 30001'],
  [
    'no port of a pooler',
    { poolers: [POOLER] },
    { pooler: true },
    'service abc is READY and no Service has its port 30002',
  ],
  [
    'the port of another one',
    { ports: [{ ...PORT, namespace: 'other', name: 'web' }] },
    {},
    'service abc is READY and its port 30001 is that of other/web',
  ],
  [
    'a Cluster elsewhere',
    { clusters: [cluster(), cluster({ namespace: 'other' })] },
    {},
    'service abc is not in Cluster other/s-abc, which has its label: ' +
      'kubectl --namespace other delete clusters.postgresql.cnpg.io s-abc',
  ],
  [
    'an unknown Cluster',
    { clusters: [cluster(), cluster({ id: 'xyz', name: 's-xyz' })] },
    {},
    'Cluster howdah-project/s-xyz, which the metadata database does not know: another ' +
      'installation may have it; if none has, kubectl --namespace howdah-project delete ' +
      'clusters.postgresql.cnpg.io s-xyz ends it with its data',
  ],
  [
    'a part of nothing',
    { parts: [SECRET, { ...SECRET, id: 'xyz', name: 's-xyz-password' }] },
    {},
    'left over: Secret howdah-project/s-xyz-password: ' +
      'kubectl --namespace howdah-project delete secrets s-xyz-password',
  ],
  [
    'a change of another one',
    { clusters: [cluster({ changes: ['kubectl-edit has set spec.instances: 2'] })] },
    {},
    'Cluster howdah-project/s-abc was changed: kubectl-edit has set spec.instances: 2. Howdah ' +
      'does not overwrite fields that others have set; see them with kubectl --namespace ' +
      'howdah-project get clusters s-abc -o yaml --show-managed-fields',
  ],
])('%s', (_what, found, service, sentence) => {
  expect(amiss(found, service)).toEqual([sentence]);
});

const ROUTE = {
  kind: KINDS.service,
  namespace: 'howdah-gateway',
  name: 'db-abc',
  id: 'abc',
  target: 's-abc-endpoint.howdah-project.svc',
};

test('a service of a region with a domain has routes in place of ports', () => {
  const routed = (routes: ClusterInventory['routes'], service: Partial<Recorded> = {}) =>
    clusterAmiss(
      { code: 'kube', domain: 'db.example.com' },
      [{ ...SERVICE, port: 5432, ...service }],
      idsOf(['abc']),
      { ...RIGHT, ports: [], poolers: service.pooler === true ? [POOLER] : [], routes },
    );
  expect(routed([ROUTE])).toEqual([]);
  const noRoute = (name: string, is: string): string =>
    `service abc is READY and Service howdah-gateway/${name} is not its route, but ${is}: ` +
    'howdah service restart writes it again';
  expect(routed([])).toEqual([noRoute('db-abc', 'there is none')]);
  expect(routed([{ ...ROUTE, target: 'elsewhere' }])).toEqual([
    noRoute('db-abc', 'it is elsewhere'),
  ]);
  expect(routed([ROUTE], { pooler: true })).toEqual([noRoute('db-abc-pooler', 'there is none')]);
  expect(routed([ROUTE, { ...ROUTE, id: 'xyz', name: 'db-xyz' }])).toEqual([
    'left over: Service howdah-gateway/db-xyz: ' +
      'kubectl --namespace howdah-gateway delete services db-xyz',
  ]);
  // A paused service needs no route.
  expect(routed([], { status: 'PAUSED' })).toEqual([
    'service abc is PAUSED and 1 of its servers run',
  ]);
});

test('objects of other regions and installations are no finding', () => {
  const other = cluster({ id: 'xyz', name: 's-xyz', region: 'other' });
  const parts = [SECRET, { ...SECRET, id: 'xyz', name: 's-xyz-password' }];
  expect(amiss({ clusters: [cluster(), other], parts })).toEqual([]);
});

test('a Cluster of a service that is in another region, and does not move, is a finding', () => {
  const found = { ...RIGHT, servers: [], ports: [] };
  expect(clusterAmiss(REGION, [], idsOf(['abc'], ['abc']), found)).toEqual([
    expect.stringMatching(/^Cluster howdah-project\/s-abc is of a service in another region/),
  ]);
  expect(clusterAmiss(REGION, [], idsOf(['abc']), found)).toEqual([]);
});

test('a Cluster of a service that has moved away is a finding unless it is stopped', () => {
  const found = { ...RIGHT, servers: [], ports: [] };
  const moved = (one: FoundCluster) =>
    clusterAmiss(REGION, [], idsOf(['abc'], [], ['abc']), { ...found, clusters: [one] });
  expect(moved(cluster())).toEqual([
    expect.stringMatching(/s-abc is of a service that has moved .* cnpg.io\/hibernation=on$/),
  ]);
  expect(moved(stateWith({ fenced: true }))).toEqual([]);
  expect(moved(stateWith({ hibernated: true }))).toEqual([]);
});
