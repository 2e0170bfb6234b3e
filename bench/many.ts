/** G3: fifty creates at once, against the same steps by hand, eight at a time. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  bareKit,
  connectBare,
  makeBare,
  removeBare,
  setPassword,
  startBare,
  type BareKit,
  type BareServer,
} from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import { atEnd } from './lib/cleanup.ts';
import { ask, call, openCloud, selectOverTls, serviceOf, type Cloud } from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { interleave, measured, valuesOf, type Sample } from './lib/measure.ts';
import { bounded, compared, type Row } from './lib/table.ts';

const SERVICES = 50;
/** More than fifty: other installations may hold some of these ports. */
const PORT_RANGE = '31200-32700';
/** As many as keep two cores busy (docs/performance.md, section 1). */
const AT_A_TIME = 8;
/** Each sample is fifty creates already. */
const MOST_ROUNDS = 4;

export const many: Bench = {
  name: 'many',
  title: `G3: ${SERVICES} creates at once`,
  run: async (context) => {
    const btrfs = await context.loop('btrfs');
    return [
      ...(await onFileSystem(context, context.here)),
      ...(typeof btrfs === 'string' ? [] : await onFileSystem(context, btrfs)),
    ];
  },
};

async function onFileSystem(
  { rounds, say }: Context,
  { name, directory }: FileSystem,
): Promise<Row[]> {
  say(`   on ${name}`);
  const cloud = await openCloud(directory, { HOWDAH_PORT_RANGE: PORT_RANGE });
  const kit = await bareKit(cloud);
  const ours = measured(() => createMany(cloud));
  const floor = measured(() => createManyBare(kit));
  await interleave(Math.min(rounds, MOST_ROUNDS), [ours, floor]);
  await cloud.end();
  return [
    compared({
      goal: 'G3',
      what: `${SERVICES} creates at once, each with its SELECT, ${name}`,
      unit: '/s',
      ours: valuesOf(ours),
      against: `by hand, ${AT_A_TIME} at a time, the same settings`,
      theirs: valuesOf(floor),
      ratio: 'ours/theirs',
      bound: { atLeast: 0.8 },
      limit: 'both cores are busy with servers that start; the control plane’s share comes on top',
    }),
    bounded({
      goal: 'G3',
      what: `of ${SERVICES} creates end READY, ${name}`,
      unit: 'services',
      ours: { median: SERVICES, min: SERVICES, max: SERVICES, n: ours.samples.length },
      bound: { atLeast: SERVICES },
      limit: 'a create that does not is an error of the bench',
    }),
  ];
}

async function createMany(cloud: Cloud): Promise<Sample> {
  const begun = performance.now();
  const answers = await Promise.all(
    Array.from({ length: SERVICES }, (_, index) =>
      ask(cloud, 'POST', '/services', { name: `many ${index}`, service_type: 'POSTGRES' }),
    ),
  );
  const waiting = new Map(
    answers.map((text) => serviceOf(JSON.parse(text))).map((service) => [service.id, service]),
  );
  const services = [...waiting.values()];
  const selects: Promise<void>[] = [];
  while (waiting.size > 0) {
    for (const { id, status } of await listServices(cloud)) {
      const service = waiting.get(id);
      if (service === undefined || status !== 'READY') continue;
      waiting.delete(id);
      selects.push(selectOverTls(cloud.ca, service.port, service.password));
    }
    // A list of hundreds costs both sides: requested more often, it
    // would be part of the measurement.
    await sleep(100);
  }
  await Promise.all(selects);
  const seconds = (performance.now() - begun) / 1000;
  await Promise.all(services.map(({ id }) => ask(cloud, 'DELETE', `/services/${id}`)));
  while ((await listServices(cloud)).length > 0) await sleep(50);
  return { value: SERVICES / seconds, parts: {} };
}

async function listServices(cloud: Cloud) {
  const parsed: unknown = JSON.parse((await call(cloud, 'GET', '/services')).text);
  if (!Array.isArray(parsed)) throw new Error('the list is none');
  return parsed.map(serviceOf);
}

async function createManyBare(kit: BareKit): Promise<Sample> {
  const made: BareServer[] = [];
  const forget = atEnd(async () => {
    await Promise.all(made.map((server) => removeBare(kit, server)));
  });
  let left = SERVICES;
  const createSome = async (): Promise<void> => {
    while (left-- > 0) {
      const server = await makeBare(kit, 'ours');
      made.push(server);
      await startBare(kit, server);
      const admin = await connectBare(server);
      const password = await setPassword(admin);
      await selectOverTls(kit.ca, server.port, password);
      admin.connection.stream.destroy();
    }
  };
  const begun = performance.now();
  await Promise.all(Array.from({ length: AT_A_TIME }, createSome));
  const seconds = (performance.now() - begun) / 1000;
  await forget();
  return { value: SERVICES / seconds, parts: {} };
}
