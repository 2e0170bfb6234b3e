/**
 * Services on Kubernetes: create, forks and many creates, each against `kubectl
 * apply` of the same Clusters by hand; and reads against those of a service on this machine.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench, Context } from './lib/bench.ts';
import {
  ask,
  call,
  connectOverTls,
  create,
  createAndSelect,
  remove,
  selectOverTls,
  serviceOf,
  stepsOf,
  type Cloud,
  type Service,
} from './lib/cloud.ts';
import { IN_REGION, openKube, openKubeCloud, operatorInWords, type Kube } from './lib/kube.ts';
import {
  createByHand,
  forkByHand,
  makeModel,
  type ByHand,
  type Power,
} from './lib/kube-by-hand.ts';
import { interleave, measured, partsInWords, valuesOf, type Sample } from './lib/measure.ts';
import { fillTables, forkAndSelect } from './lib/source.ts';
import { compared, skipped, type Row } from './lib/table.ts';

/** The size of the service that is forked. */
const FORKED_MB = 1000;
/** As many as a node with two processors schedules: each asks for 50 thousandths of one. */
const SERVICES = 30;
/** Each sample is thirty creates, and the first is dropped. */
const MANY_ROUNDS = 2;
const GETS = 500;

/** A benchmark of a region on Kubernetes, if there is a cluster. */
function benchOf(
  name: string,
  title: string,
  measure: (kube: Kube, cloud: Cloud, context: Context) => Promise<Row[]>,
): Bench {
  return {
    name,
    title,
    run: async (context) => {
      const kube = await openKube();
      if (typeof kube === 'string') return [skipped('K', title, kube)];
      const cloud = await openKubeCloud(kube, context.here.directory);
      try {
        return await measure(kube, cloud, context);
      } finally {
        await removeServices(cloud);
        await cloud.end();
      }
    },
  };
}

/** The end of an installation removes nothing in the cluster. */
async function removeServices(cloud: Cloud): Promise<void> {
  const listed: unknown = JSON.parse((await call(cloud, 'GET', '/services')).text);
  if (!Array.isArray(listed)) throw new Error('the list is none');
  await Promise.all(listed.map((service) => remove(cloud, serviceOf(service).id)));
}

export const kubeCreate = benchOf(
  'kube-create',
  'Kubernetes: create → first SELECT over TLS',
  async (kube, cloud, { rounds, temp }) => {
    const model = await makeModel(kube, cloud);
    const byHand: ByHand = { kube, cloud, directory: temp, model };
    const ours = measured(() => createOurs(cloud));
    const floor = measured(() => createByHand(byHand));
    await interleave(rounds, [ours, floor]);
    return [
      compared({
        goal: 'K',
        what: `create → SELECT, ${operatorInWords()}`,
        unit: 'ms',
        ours: valuesOf(ours),
        against: '`kubectl apply` of the same Cluster',
        theirs: valuesOf(floor),
        ratio: 'ours/theirs',
        bound: { atMost: 1.15 },
        limit: `ms of ours: ${partsInWords(ours)}; by hand: ${partsInWords(floor)}`,
      }),
    ];
  },
);

async function createOurs(cloud: Cloud): Promise<Sample> {
  const { service, sample } = await createAndSelect(cloud, IN_REGION);
  const steps = await stepsOf(cloud, service.id);
  await remove(cloud, service.id);
  return { value: sample.value, parts: { ...sample.parts, ...steps } };
}

/** @param by the object of the snapshot by hand */
const forkBench = (name: string, power: Power, by: string): Bench =>
  benchOf(
    name,
    `Kubernetes: fork of a ${power} service of ${FORKED_MB} MB by a snapshot → first SELECT`,
    async (kube, cloud, { rounds, temp }) => {
      const model = await makeModel(kube, cloud, (service) => load(cloud, service), power);
      const byHand: ByHand = { kube, cloud, directory: temp, model };
      const ours = measured(() => forkOurs(cloud, model.service));
      const floor = measured(() => forkByHand(byHand, power));
      await interleave(rounds, [ours, floor]);
      return [
        compared({
          goal: 'K',
          what: `fork of a ${power} service of ${FORKED_MB} MB → SELECT, ${operatorInWords()}`,
          unit: 'ms',
          ours: valuesOf(ours),
          against: `\`kubectl apply\` of a ${by}, then of the same Cluster`,
          theirs: valuesOf(floor),
          ratio: 'ours/theirs',
          bound: { atMost: 1.2 },
          limit: `ms of ours: ${partsInWords(ours)}; by hand: ${partsInWords(floor)}`,
        }),
      ];
    },
  );

export const kubeFork = forkBench('kube-fork', 'stopped', 'VolumeSnapshot');
export const kubeForkRunning = forkBench('kube-fork-running', 'running', 'Backup');

async function load(cloud: Cloud, { port, password }: Service): Promise<void> {
  const client = await connectOverTls(cloud.ca, port, password, cloud.host);
  try {
    await fillTables(client, FORKED_MB);
  } finally {
    await client.end();
  }
}

async function forkOurs(cloud: Cloud, source: Service): Promise<Sample> {
  const { cpu_millis, memory_gbs } = IN_REGION;
  const body = { fork_strategy: 'NOW', cpu_millis, memory_gbs };
  const { fork, sample } = await forkAndSelect(cloud, source, body);
  await remove(cloud, fork.id);
  return sample;
}

export const kubeMany = benchOf(
  'kube-many',
  `Kubernetes: ${SERVICES} creates at once`,
  async (kube, cloud, { temp }) => {
    const model = await makeModel(kube, cloud);
    const byHand: ByHand = { kube, cloud, directory: temp, model };
    const ours = measured(() => createMany(cloud));
    const floor = measured(() => createByHand(byHand, SERVICES));
    await interleave(MANY_ROUNDS, [ours, floor]);
    return [
      compared({
        goal: 'K',
        what: `${SERVICES} creates at once, each with its SELECT, ${operatorInWords()}`,
        unit: 'ms',
        ours: valuesOf(ours),
        against: '`kubectl apply` of all of them',
        theirs: valuesOf(floor),
        ratio: 'ours/theirs',
        bound: { atMost: 1.15 },
        limit: 'both processors start PostgreSQL',
      }),
    ];
  },
);

async function createMany(cloud: Cloud): Promise<number> {
  const begun = performance.now();
  const services = await Promise.all(
    Array.from({ length: SERVICES }, async (_, index) =>
      serviceOf(
        JSON.parse(
          await ask(cloud, 'POST', '/services', {
            name: `many ${index}`,
            service_type: 'POSTGRES',
            ...IN_REGION,
          }),
        ),
      ),
    ),
  );
  await Promise.all(
    services.map(async ({ id, port, password }) => {
      // A client that polls each of thirty services as often as one would be part of the figure.
      while (
        serviceOf(JSON.parse((await call(cloud, 'GET', `/services/${id}`)).text)).status !== 'READY'
      )
        await sleep(200);
      await selectOverTls(cloud.ca, port, password, cloud.host);
    }),
  );
  const ms = performance.now() - begun;
  await Promise.all(services.map(({ id }) => remove(cloud, id)));
  return ms;
}

export const kubeGet = benchOf(
  'kube-get',
  'Kubernetes: GET of a service, beside one of this machine',
  async (_kube, cloud, { rounds }) => {
    const [there, here] = [await create(cloud, IN_REGION), await create(cloud)];
    const ours = measured(() => get(cloud, there.id));
    const local = measured(() => get(cloud, here.id));
    await interleave(rounds, [ours, local]);
    return [
      compared({
        goal: 'K',
        what: `GET of a service, ${GETS} one after the other`,
        unit: 'ms',
        ours: valuesOf(ours),
        against: 'the same of a service on this machine',
        theirs: valuesOf(local),
        ratio: 'ours/theirs',
        bound: { atMost: 1.1 },
        limit: '',
      }),
    ];
  },
);

async function get(cloud: Cloud, id: string): Promise<number> {
  const begun = performance.now();
  for (let n = 0; n < GETS; n += 1) {
    const { status } = await call(cloud, 'GET', `/services/${id}`);
    if (status !== 200) throw new Error(`GET was answered ${status}`);
  }
  return performance.now() - begun;
}
