/**
 * The same Clusters by hand: the objects that Howdah has written for a service, under another name
 * and without its labels, given to `kubectl apply`.
 */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Type, type Static } from 'typebox';
import {
  clusterName,
  LABELS,
  namespaceOf,
} from '../../packages/server/src/engine/kubernetes/names.ts';
import { CLUSTERS } from '../../packages/server/test-kubernetes/operator/cluster.ts';
import { ask, create, selectOverTls, untilStatus, type Cloud, type Service } from './cloud.ts';
import { IN_REGION, podNames, type Kube } from './kube.ts';
import { stopwatch, type Sample } from './measure.ts';

/** Ports of nodes for Clusters by hand, beside those of the region. */
const FIRST_PORT = 30_300;
const PORT_COUNT = 100;
const POLL_MS = 5;

const SECRET = Type.Object({
  metadata: Type.Object({
    name: Type.String(),
    // The operator makes some by itself.
    ownerReferences: Type.Optional(Type.Array(Type.Unknown())),
  }),
  type: Type.String(),
  data: Type.Record(Type.String(), Type.String()),
});
const CLUSTER = Type.Object({
  spec: Type.Object({
    inheritedMetadata: Type.Unknown(),
    bootstrap: Type.Object({
      initdb: Type.Object({
        database: Type.String(),
        owner: Type.String(),
        secret: Type.Object({ name: Type.String() }),
      }),
    }),
  }),
});

/** A service that is copied by hand. */
export type Model = Readonly<{
  service: Service;
  secrets: readonly Static<typeof SECRET>[];
  cluster: Static<typeof CLUSTER>;
}>;

/** Whether a service runs while it is forked. */
export type Power = 'stopped' | 'running';

/** Creates a service, and reads its objects. @param load fills it with data */
export async function makeModel(
  { operator: { api } }: Kube,
  cloud: Cloud,
  load: (service: Service) => Promise<void> = async () => undefined,
  power: Power = 'stopped',
): Promise<Model> {
  const service = await create(cloud, IN_REGION);
  await load(service);
  const { id } = service;
  const namespace = namespaceOf(cloud.projectId);
  const listed = await api.list(
    `/api/v1/namespaces/${namespace}/secrets?labelSelector=${LABELS.service}=${id}`,
    SECRET,
  );
  const path = `${CLUSTERS}/namespaces/${namespace}/clusters/${clusterName(id)}`;
  const cluster = await api.read(path, CLUSTER);
  if (power === 'stopped') {
    await ask(cloud, 'POST', `/services/${id}/stop`);
    await untilStatus(cloud, id, 'PAUSED');
  }
  const secrets = listed.filter(({ metadata }) => metadata.ownerReferences === undefined);
  return { service, secrets, cluster };
}

export type ByHand = Readonly<{
  kube: Kube;
  cloud: Cloud;
  /** For the files that are applied. */
  directory: string;
  model: Model;
}>;

let made = 0;

/** A Cluster by hand: its name, its port, and what `kubectl apply` gets. */
type Copy = Readonly<{ name: string; port: number; secrets: string[]; items: unknown[] }>;

/** @param bootstrap in place of an empty database */
function copyOf({ model, cloud }: ByHand, bootstrap?: (name: string) => object): Copy {
  const { service, secrets, cluster } = model;
  made += 1;
  const name = `by-hand-${made}`;
  const port = FIRST_PORT + (made % PORT_COUNT);
  const namespace = namespaceOf(cloud.projectId);
  const { initdb } = cluster.spec.bootstrap;
  const { database, owner, secret } = initdb;
  const spec = {
    ...cluster.spec,
    inheritedMetadata: { labels: { app: name } },
    bootstrap:
      bootstrap === undefined
        ? { initdb }
        : { recovery: { ...bootstrap(name), database, owner, secret } },
  };
  const items = [
    ...secrets.map(({ metadata, type, data }) => ({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: metadata.name, namespace, labels: { 'cnpg.io/reload': 'true' } },
      type,
      data,
    })),
    {
      apiVersion: 'postgresql.cnpg.io/v1',
      kind: 'Cluster',
      metadata: { name, namespace },
      spec,
    },
  ];
  const renamed = (text: string): string => text.replaceAll(clusterName(service.id), name);
  return {
    name,
    port,
    secrets: secrets.map(({ metadata }) => renamed(metadata.name)),
    items: items.map((item): unknown =>
      JSON.parse(renamed(JSON.stringify(item)).replaceAll(/"nodePort":\d+/g, `"nodePort":${port}`)),
    ),
  };
}

async function apply({ kube, directory }: ByHand, items: readonly unknown[]): Promise<void> {
  const file = join(directory, `by-hand-${made}.json`);
  await writeFile(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  await kube.rig.inNode('kubectl', 'apply', '--server-side', '--filename', file);
  await rm(file);
}

/** Tries until the first row is there, as somebody who waits for a new server does. */
async function untilSelected({ cloud, model }: ByHand, port: number): Promise<void> {
  for (;;) {
    try {
      await selectOverTls(cloud.ca, port, model.service.password, cloud.host);
      return;
    } catch {
      await sleep(POLL_MS);
    }
  }
}

async function remove({ kube, cloud }: ByHand, copies: readonly Copy[]): Promise<void> {
  const { rig } = kube;
  const namespace = ['--namespace', namespaceOf(cloud.projectId)];
  const names = copies.map(({ name }) => name);
  await rig.inNode('kubectl', 'delete', 'cluster', ...names, ...namespace);
  const isLeft = (pod: string): boolean => names.some((name) => pod.startsWith(`${name}-`));
  while ((await podNames(kube, cloud.projectId)).some(isLeft)) await sleep(50);
  const secrets = copies.flatMap((copy) => copy.secrets);
  await rig.inNode('kubectl', 'delete', 'secret', ...secrets, ...namespace);
}

/** From `kubectl apply` to the first row over TLS of each. @returns in ms */
export async function createByHand(byHand: ByHand, count = 1): Promise<Sample> {
  const copies = Array.from({ length: count }, () => copyOf(byHand));
  const watch = stopwatch();
  await apply(
    byHand,
    copies.flatMap(({ items }) => items),
  );
  watch.lap('kubectl apply');
  await Promise.all(copies.map(({ port }) => untilSelected(byHand, port)));
  watch.lap('until SELECT');
  const sample = watch.sample();
  await remove(byHand, copies);
  return sample;
}

/** The snapshot of a service: the object that is applied, and when it is taken. */
function snapshotOf({ kube, model }: ByHand, power: Power) {
  const cluster = clusterName(model.service.id);
  return power === 'running'
    ? {
        resource: 'backups.postgresql.cnpg.io',
        isTaken: '{.status.phase}=completed',
        object: {
          apiVersion: 'postgresql.cnpg.io/v1',
          kind: 'Backup',
          spec: { cluster: { name: cluster }, method: 'volumeSnapshot' },
        },
      }
    : {
        resource: 'volumesnapshot',
        isTaken: '{.status.readyToUse}=true',
        object: {
          apiVersion: 'snapshot.storage.k8s.io/v1',
          kind: 'VolumeSnapshot',
          spec: {
            volumeSnapshotClassName: kube.rig.storageClass,
            source: { persistentVolumeClaimName: `${cluster}-1` },
          },
        },
      };
}

/** The same of a snapshot of a service. A Backup has one of its name. */
export async function forkByHand(byHand: ByHand, power: Power): Promise<Sample> {
  const { kube, cloud } = byHand;
  const namespace = namespaceOf(cloud.projectId);
  const nameOf = (name: string): string => `${name}-origin`;
  const copy = copyOf(byHand, (name) => ({
    volumeSnapshots: {
      storage: {
        apiGroup: 'snapshot.storage.k8s.io',
        kind: 'VolumeSnapshot',
        name: nameOf(name),
      },
    },
  }));
  const snapshot = nameOf(copy.name);
  const { resource, isTaken, object } = snapshotOf(byHand, power);
  const watch = stopwatch();
  await apply(byHand, [{ ...object, metadata: { name: snapshot, namespace } }]);
  const named = [resource, snapshot, '--namespace', namespace];
  await kube.rig.inNode('kubectl', 'wait', ...named, `--for=jsonpath=${isTaken}`, '--timeout=60s');
  watch.lap('snapshot');
  await apply(byHand, copy.items);
  await untilSelected(byHand, copy.port);
  watch.lap('Cluster');
  const sample = watch.sample();
  await remove(byHand, [copy]);
  await kube.rig.inNode('kubectl', 'delete', ...named);
  return sample;
}
