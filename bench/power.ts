/**
 * G10: starting a paused service and stopping a running one, against the same server started and
 * stopped by hand.
 */
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { connectBare, bareKit, idleBare, setPassword, startBare, stopBare } from './lib/bare.ts';
import type { Bench } from './lib/bench.ts';
import {
  ask,
  create,
  openCloud,
  selectOverTls,
  stepsOf,
  untilStatus,
  type Cloud,
} from './lib/cloud.ts';
import {
  idle,
  interleave,
  measured,
  partOf,
  stopwatch,
  type Case,
  type Sample,
} from './lib/measure.ts';
import { compared } from './lib/table.ts';
import { prepareMachine } from '../packages/server/src/engine/local/host/machine.ts';
import { findServer } from '../packages/server/src/engine/local/postgres/server.ts';

export const power: Bench = {
  name: 'power',
  title: 'G10: start a paused service → first SELECT; stop → PAUSED and gone',
  run: async ({ here, rounds }) => {
    const cloud = await openCloud(here.directory);
    const kit = await bareKit(cloud);
    const service = await create(cloud);
    await selectOverTls(cloud.ca, service.port, service.password);
    const { server, forget } = await idleBare(kit, 'ours');
    const admin = await connectBare(server);
    const password = await setPassword(admin);
    await admin.end();
    await selectOverTls(kit.ca, server.port, password);

    const ours = measured(() => stopAndStart(cloud, service));
    const floor = measured(async () => {
      const stopped = stopwatch();
      await stopBare(server);
      stopped.lap('stop');
      await idle();
      const started = stopwatch();
      await startBare(kit, server);
      started.lap('ready');
      await selectOverTls(kit.ca, server.port, password);
      started.lap('TLS + SELECT');
      return {
        value: 0,
        parts: { ...stopped.parts, ...started.parts, start: started.sample().value },
      };
    });
    await interleave(rounds, [ours, floor]);
    await forget();
    await cloud.end();
    const row = { goal: 'G10', unit: 'ms', ratio: 'ours/theirs', bound: { atMost: 1.5 } } as const;
    return [
      compared({
        ...row,
        what: `start → SELECT, ${here.name}`,
        ours: partOf(ours, 'start'),
        against: 'start + TLS SELECT by hand',
        theirs: partOf(floor, 'start'),
        limit:
          'ms of ours: ' +
          `${parts(ours, 'start answered', 'start PostgreSQL', 'READY', 'TLS + SELECT')}; of ` +
          `the floor: ${parts(floor, 'ready', 'TLS + SELECT')}`,
      }),
      compared({
        ...row,
        what: `stop → PAUSED and gone, ${here.name}`,
        ours: partOf(ours, 'stop'),
        against: 'fast stop by hand',
        theirs: partOf(floor, 'stop'),
        limit: `ms of ours: ${parts(ours, 'stop answered', 'stop PostgreSQL', 'PAUSED', 'gone')}`,
      }),
    ];
  },
};

function parts(one: Case, ...names: string[]): string {
  return names.map((name) => `${name} ${partOf(one, name).median.toFixed(1)}`).join(', ');
}

async function stopAndStart(
  cloud: Cloud,
  service: { id: string; port: number; password: string },
): Promise<Sample> {
  const machine = await prepareMachine(cloud.home);
  const running = await findServer(machine.layout.service(service.id));
  if (running === null) throw new Error('the service does not run');
  await idle();
  const stopped = stopwatch();
  await ask(cloud, 'POST', `/services/${service.id}/stop`);
  stopped.lap('stop answered');
  await untilStatus(cloud, service.id, 'PAUSED');
  stopped.lap('PAUSED');
  while (await exists(running.postmaster.pid)) await sleep(1);
  stopped.lap('gone');
  const stop = stopped.sample();
  const stopSteps = await stepsOf(cloud, service.id);
  await idle();
  const started = stopwatch();
  await ask(cloud, 'POST', `/services/${service.id}/start`);
  started.lap('start answered');
  await untilStatus(cloud, service.id, 'READY');
  started.lap('READY');
  await selectOverTls(cloud.ca, service.port, service.password);
  started.lap('TLS + SELECT');
  const start = started.sample();
  return {
    value: 0,
    parts: {
      ...stop.parts,
      ...stopSteps,
      ...start.parts,
      ...(await stepsOf(cloud, service.id)),
      stop: stop.value,
      start: start.value,
    },
  };
}

async function exists(pid: number): Promise<boolean> {
  return readFile(`/proc/${pid}/stat`).then(
    () => true,
    () => false,
  );
}
