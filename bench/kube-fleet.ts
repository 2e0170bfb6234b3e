/**
 * A control plane with hundreds of Clusters: its CPU time at rest, and how soon it shows what has
 * happened to one. The Clusters and their pods are real objects, copies of one service; only that
 * one has processes, and answers at the ports of all.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import { Type } from 'typebox';
import { clusterName, namespaceOf } from '../packages/server/src/engine/kubernetes/names.ts';
import { insertFleet } from '../packages/server/test/fleet.ts';
import { openMetadata } from '../packages/server/test/metadata.ts';
import { CLUSTERS } from '../packages/server/test-kubernetes/operator/cluster.ts';
import { HEALTHY, PHASES } from '../packages/server/test-kubernetes/operator/status.ts';
import { idlePercent } from './fleet.ts';
import type { Bench } from './lib/bench.ts';
import { create, untilStatus, type Cloud, type Service } from './lib/cloud.ts';
import { IN_REGION, openKube, openKubeCloud, podNames, type Kube } from './lib/kube.ts';
import { idle, summarize, type Summary } from './lib/measure.ts';
import { bounded, skipped, type Row } from './lib/table.ts';

const COUNT = 500;
/** Ports of nodes, beside those of the region and of Clusters by hand. */
const FIRST_PORT = 31_000;
const AT_A_TIME = 16;
const CHANGES = 10;
/** After a start each service is looked at and asked for an answer, and its log is read. */
const SETTLING_MS = 180_000;
/** The first snapshot of a new service, which its copies then have too. */
const SNAPSHOT_MS = 600_000;

const TITLE = `Kubernetes: ${COUNT} running services`;

export const kubeFleet: Bench = {
  name: 'kube-fleet',
  title: TITLE,
  run: async ({ here, say }) => {
    const kube = await openKube();
    // The operator would make servers of the copies.
    if (typeof kube === 'string') return [skipped('K', TITLE, kube)];
    const cloud = await openKubeCloud(kube, here.directory);
    const model = await create(cloud, IN_REGION);
    const templates = await templatesOf(kube, cloud, model);
    kube.operator.faults.isStuck = true;
    try {
      return await measure(kube, cloud, { model, templates }, say);
    } finally {
      const namespace = `/api/v1/namespaces/${namespaceOf(cloud.projectId)}`;
      await kube.operator.api.remove(namespace);
      while ((await podNames(kube, cloud.projectId)).length > 0) await sleep(200);
      while ((await kube.operator.api.list(`${CLUSTERS}/clusters`, OBJECT)).length > 0)
        await sleep(200);
      kube.operator.faults.isStuck = false;
      await cloud.end();
    }
  },
};

type Fleet = Readonly<{ model: Service; templates: readonly Template[] }>;

async function measure(
  kube: Kube,
  cloud: Cloud,
  { model, templates }: Fleet,
  say: (text: string) => void,
): Promise<Row[]> {
  const metadata = await openMetadata(cloud.home);
  const counts = { services: COUNT, operations: 10 * COUNT, events: 0, audit: 0, deliveries: 0 };
  await cloud.stop('SIGKILL');
  const removeRecords = await insertFleet(metadata.db, model.id, counts);
  const { rows } = await sql<{ id: string }>`select id from fleet order by number`.execute(
    metadata.db,
  );
  await metadata.db.transaction().execute(async (tx) => {
    await sql`set local session_replication_role = replica`.execute(tx);
    await sql`update services set port = ${FIRST_PORT} + fleet.number
      from fleet where services.id = fleet.id`.execute(tx);
  });
  say(`   ${COUNT} Clusters`);
  const copies = rows.map(({ id }, index) => ({ id, port: FIRST_PORT + 1 + index }));
  await inTurns(copies, (copy) => makeCopy(kube, model, templates, copy));
  await cloud.up();
  await idle();
  say('   idle for 30 s');
  await sleep(SETTLING_MS);
  const cpu = await idlePercent(cloud);
  const seen = await statusChanges(kube, cloud, copies);
  await removeRecords();
  await metadata.close();
  return [
    bounded({
      goal: 'K',
      what: `${COUNT} running services: idle CPU, control plane and metadata`,
      unit: '% of a core',
      ours: cpu,
      bound: { atMost: 5 },
      limit: '',
    }),
    bounded({
      goal: 'K',
      what: `${COUNT} running services: from a change of a Cluster’s status until a GET shows it`,
      unit: 'ms',
      ours: seen,
      bound: { atMost: 1000 },
      limit: '',
    }),
  ];
}

async function inTurns<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const worker = async (): Promise<void> => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, worker));
}

/** An object of the service that is copied. */
type Template = Readonly<{ collection: string; text: string; status: unknown }>;

const OBJECT = Type.Object({
  metadata: Type.Object({
    name: Type.String(),
    labels: Type.Record(Type.String(), Type.String()),
    annotations: Type.Optional(Type.Record(Type.String(), Type.String())),
  }),
  spec: Type.Object({}),
  status: Type.Unknown(),
});

const BACKUP = Type.Object({
  metadata: Type.Object({ name: Type.String() }),
  status: Type.Object({ phase: Type.Literal('completed') }),
});

/** The Cluster, the pod, the Service and the backup of a service. */
async function templatesOf(
  { operator: { api } }: Kube,
  { projectId }: Cloud,
  { id }: Service,
): Promise<Template[]> {
  const namespace = namespaceOf(projectId);
  const core = `/api/v1/namespaces/${namespace}`;
  const own = `${CLUSTERS}/namespaces/${namespace}`;
  const name = clusterName(id);
  const deadline = Date.now() + SNAPSHOT_MS;
  let [backup] = await api.list(`${own}/backups`, BACKUP);
  while (backup === undefined) {
    if (Date.now() > deadline) throw new Error('the service has got no snapshot');
    await sleep(1000);
    [backup] = await api.list(`${own}/backups`, BACKUP);
  }
  const read = async (collection: string, object: string, kind: object, spec = {}) => {
    const found = await api.read(`${collection}/${object}`, OBJECT);
    const { labels, annotations = {} } = found.metadata;
    const copy = {
      ...kind,
      metadata: { name: found.metadata.name, labels, annotations },
      spec: { ...found.spec, ...spec },
    };
    return { collection, text: JSON.stringify(copy), status: found.status };
  };
  await api.merge(`${core}/pods/${name}-1`, { metadata: { labels: { [COMMON]: 'yes' } } });
  const ofOperator = (kind: string) => ({ apiVersion: 'postgresql.cnpg.io/v1', kind });
  return [
    await read(`${own}/clusters`, name, ofOperator('Cluster')),
    await read(`${core}/pods`, `${name}-1`, { apiVersion: 'v1', kind: 'Pod' }, NEVER_SCHEDULED),
    await read(
      `${core}/services`,
      `${name}-endpoint`,
      { apiVersion: 'v1', kind: 'Service' },
      {
        clusterIP: undefined,
        clusterIPs: undefined,
        // All lead to the one server that there is.
        selector: { [COMMON]: 'yes' },
      },
    ),
    await read(`${own}/backups`, backup.metadata.name, ofOperator('Backup')),
  ];
}

const NEVER_SCHEDULED = { nodeName: undefined, schedulingGates: [{ name: 'howdah.io/bench' }] };
/** The label of the one server. */
const COMMON = 'bench.howdah.io/server';

type Made = Readonly<{ id: string; port: number }>;

async function makeCopy(
  { operator: { api } }: Kube,
  model: Service,
  templates: readonly Template[],
  { id, port }: Made,
): Promise<void> {
  for (const { collection, text, status } of templates) {
    const renamed = text
      .replaceAll(model.id, id)
      .replaceAll(/"nodePort":\d+/g, `"nodePort":${port}`);
    const object: unknown = JSON.parse(renamed);
    if (typeof object !== 'object' || object === null) throw new Error('no object');
    await api.create(collection, object);
    const name = String(Reflect.get(Object(Reflect.get(object, 'metadata')), 'name'));
    const ownStatus: unknown = JSON.parse(JSON.stringify(status).replaceAll(model.id, id));
    await api.merge(`${collection}/${name}/status`, { status: ownStatus });
  }
}

/** Reports that a server does not run, and waits until its service shows it, again and again. */
async function statusChanges(
  { operator: { api } }: Kube,
  cloud: Cloud,
  copies: readonly Made[],
): Promise<Summary> {
  const clusters = `${CLUSTERS}/namespaces/${namespaceOf(cloud.projectId)}/clusters`;
  const values: number[] = [];
  for (let n = 0; n < CHANGES; n += 1) {
    const id = copies[Math.floor((n * copies.length) / CHANGES)]?.id ?? '';
    const path = `${clusters}/${clusterName(id)}/status`;
    await api.merge(path, { status: { phase: PHASES.waiting, readyInstances: 0 } });
    const begun = performance.now();
    await untilStatus(cloud, id, 'UNSTABLE');
    values.push(performance.now() - begun);
    await api.merge(path, { status: { phase: HEALTHY.phase, readyInstances: 1 } });
    await untilStatus(cloud, id, 'READY');
  }
  return summarize(values);
}
