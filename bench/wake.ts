/**
 * A service that sleeps, until the first row over TLS, against the start of the same server by hand
 * and a SELECT over TLS.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { bareKit, connectBare, idleBare, setPassword, startBare, stopBare } from './lib/bare.ts';
import type { Bench } from './lib/bench.ts';
import { call, create, openCloud, selectOverTls, type Cloud, type Service } from './lib/cloud.ts';
import {
  idle,
  interleave,
  measured,
  partsInWords,
  stopwatch,
  summarize,
  valuesOf,
} from './lib/measure.ts';
import { bounded, compared } from './lib/table.ts';

/** The shortest time that a service takes to fall asleep. */
const AFTER_S = 5;
/** Clients that wake one service at once. */
const CROWD = 50;

export const wake: Bench = {
  name: 'wake',
  title: 'a service that sleeps → first SELECT over TLS',
  run: async ({ here, rounds }) => {
    const cloud = await openCloud(here.directory);
    const kit = await bareKit(cloud);
    const service = await create(cloud, { auto_suspend_seconds: AFTER_S });
    const { server, forget } = await idleBare(kit, 'ours');
    const admin = await connectBare(server);
    const password = await setPassword(admin);
    admin.connection.stream.destroy();
    const ours = measured(async () => {
      await untilAsleep(cloud, service);
      await idle();
      const watch = stopwatch();
      await selectOverTls(cloud.ca, service.port, service.password, cloud.host);
      return watch.sample();
    });
    const floor = measured(async () => {
      await stopBare(server);
      await idle();
      const watch = stopwatch();
      await startBare(kit, server);
      watch.lap('start');
      await selectOverTls(kit.ca, server.port, password);
      watch.lap('TLS + SELECT');
      return watch.sample();
    });
    await interleave(rounds, [ours, floor]);
    const crowd = await wakeByMany(cloud, service);
    await forget();
    await cloud.end();
    return [
      compared({
        goal: 'wake',
        what: `asleep → first SELECT over TLS, ${here.name}`,
        unit: 'ms',
        ours: valuesOf(ours),
        against: 'start of the same server by hand + TLS SELECT',
        theirs: valuesOf(floor),
        ratio: 'ours/theirs',
        bound: { atMost: 1.3 },
        limit: `of the floor: ${partsInWords(floor)}`,
      }),
      bounded({
        goal: 'wake',
        what: `${CROWD} clients at once wake one service, until the last has its row`,
        unit: 'ms',
        ours: summarize([crowd]),
        bound: { atMost: 5000 },
        limit: '',
      }),
    ];
  },
};

async function untilAsleep(cloud: Cloud, { id }: Service): Promise<void> {
  while (!(await call(cloud, 'GET', `/services/${id}`)).text.includes('"suspended":true'))
    await sleep(50);
}

async function wakeByMany(cloud: Cloud, service: Service): Promise<number> {
  await untilAsleep(cloud, service);
  const begun = performance.now();
  await Promise.all(
    Array.from({ length: CROWD }, () =>
      selectOverTls(cloud.ca, service.port, service.password, cloud.host),
    ),
  );
  return performance.now() - begun;
}
