/** G14: the cost of idle services and of the control plane, against servers by hand beside them. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  bareKit,
  connectBare,
  idleBare,
  type BareKit,
  type BareServer,
  type BareSettings,
} from './lib/bare.ts';
import type { Bench } from './lib/bench.ts';
import { create, openCloud, openMetadata, remove, type Cloud } from './lib/cloud.ts';
import { summarize } from './lib/measure.ts';
import { insertPaused } from './lib/paused.ts';
import { residentMegabytes, treeCpuMs, treeMegabytes } from './lib/processes.ts';
import { bounded, compared, type Row } from './lib/table.ts';
import { prepareMachine } from '../packages/server/src/engine/local/host/machine.ts';
import { readOrNull } from '../packages/server/src/lib/processes.ts';

const SERVICES = 20;
const PAUSED = 10_000;
/** Idle time before anything is measured: autovacuum and the sampler have run. */
const SETTLE_MS = 60_000;
const CPU_WINDOW_MS = 20_000;

export const memory: Bench = {
  name: 'memory',
  title: `G14: memory and CPU of ${SERVICES} idle services and of the control plane`,
  run: async ({ here, say }) => {
    const cloud = await openCloud(here.directory);
    const kit = await bareKit(cloud);
    await settled(cloud);
    const planeAlone = await residentMegabytes(planePid(cloud));
    const services = await Promise.all(Array.from({ length: SERVICES }, () => create(cloud)));
    const machine = await prepareMachine(cloud.home);
    const ours = await Promise.all(
      services.map(async ({ id }) => Number(await readOrNull(machine.layout.service(id).pidFile))),
    );
    const same = await bareServers(kit, 'ours');
    const small = await bareServers(kit, 'small');
    say(
      `   ${SERVICES} services and ${2 * SERVICES} servers by hand run; ` +
        `waiting ${SETTLE_MS / 1000} s`,
    );
    await sleep(SETTLE_MS);
    const [oursMb, sameMb, smallMb] = [
      await megabytes(ours),
      await megabytes(same.pids),
      await megabytes(small.pids),
    ];
    const [oursCpu, sameCpu, planeCpu] = await Promise.all([
      cpu(ours),
      cpu(same.pids),
      cpu([planePid(cloud)]),
    ]);
    const planeBusy = await residentMegabytes(planePid(cloud));
    // Each service has the control plane's own connection; the fair floor has one too.
    const connections = await Promise.all(same.servers.map(connectBare));
    await Promise.all(connections.map((client) => client.query('select 1')));
    const connectedMb = await megabytes(same.pids);
    await Promise.all(connections.map((client) => client.end()));
    for (const { forget } of [same, small]) await forget();
    for (const { id } of services) await remove(cloud, id);

    const fleet = await insertPaused(cloud, PAUSED);
    await fleet.metadata.end();
    await cloud.stop('SIGTERM');
    await cloud.up();
    await settled(cloud);
    const planePaused = await residentMegabytes(planePid(cloud));
    // The stop ended the metadata database, and the fleet's connection with it.
    await removeRows(cloud, fleet.projectId);
    await cloud.end();
    return [
      ...perService(oursMb, { sameMb, connectedMb, smallMb }),
      ...idleCpu(oursCpu, sameCpu, planeCpu),
      plane('0 services', planeAlone, 150),
      plane(`${SERVICES} idle services`, planeBusy, 150 + SERVICES * 0.02),
      plane(`${PAUSED} paused services, after a start`, planePaused, 150 + PAUSED * 0.02),
    ];
  },
};

function perService(
  ours: number[],
  floors: { sameMb: number[]; connectedMb: number[]; smallMb: number[] },
): Row[] {
  const row = {
    goal: 'G14',
    what: `PSS of an idle service, ${SERVICES} side by side`,
    unit: 'MB',
    ours: summarize(ours),
    ratio: 'ours/theirs',
  } as const;
  return [
    compared({
      ...row,
      against: 'servers by hand, the same settings',
      theirs: summarize(floors.sameMb),
      bound: { atMost: 1.2 },
      limit: 'the kept admin connection: one backend each',
    }),
    compared({
      ...row,
      against: 'the same, each with one idle connection',
      theirs: summarize(floors.connectedMb),
      bound: { atMost: 1.2 },
      limit: 'unshare around each server; pages that the sampler’s queries touched',
    }),
    compared({
      ...row,
      against: 'PostgreSQL’s defaults with shared_buffers=16MB',
      theirs: summarize(floors.smallMb),
      bound: null,
      limit: 'settings: shared_buffers, wal_level=logical, the log collector, pg_stat_statements',
    }),
  ];
}

function idleCpu(ours: number[], same: number[], planeMs: number[]): Row[] {
  const row = { goal: 'G14', unit: 'ms/s' } as const;
  return [
    compared({
      ...row,
      what: 'CPU of an idle service',
      ours: mean(ours),
      against: 'servers by hand, the same settings',
      theirs: mean(same),
      ratio: 'ours/theirs',
      bound: null,
      limit:
        'PostgreSQL’s own idle processes; of ours a heartbeat every 5 s and a look at ' +
        'its figures every 60 s',
    }),
    bounded({
      ...row,
      what: 'CPU of an idle service',
      ours: mean(ours),
      bound: { atMost: 0.2 },
      limit: 'a server by hand takes as much (the row above)',
    }),
    bounded({
      ...row,
      what: `CPU of the control plane, for each of ${SERVICES} idle services`,
      ours: mean(planeMs.map((ms) => ms / SERVICES)),
      bound: null,
      limit: 'heartbeats; once a minute the sampler reads /proc and asks each server',
    }),
  ];
}

function plane(what: string, value: number, atMost: number): Row {
  return bounded({
    goal: 'G14',
    what: `RSS of the control plane, ${what}`,
    unit: 'MB',
    ours: summarize([value]),
    bound: { atMost },
    limit: 'Node itself and the code that is loaded',
  });
}

function mean(values: readonly number[]) {
  const { min, max, n } = summarize(values);
  return { median: values.reduce((sum, value) => sum + value, 0) / values.length, min, max, n };
}

async function bareServers(kit: BareKit, settings: BareSettings) {
  const made: { server: BareServer; forget: () => Promise<void> }[] = [];
  for (let count = 0; count < SERVICES; count++) made.push(await idleBare(kit, settings));
  return {
    servers: made.map(({ server }) => server),
    pids: made.map(({ server }) => server.process?.pid ?? 0),
    forget: async () => {
      for (const { forget } of made) await forget();
    },
  };
}

async function megabytes(pids: readonly number[]): Promise<number[]> {
  const each: number[] = [];
  for (const pid of pids) each.push(await treeMegabytes(pid));
  return each;
}

/** CPU time used in a second, in ms, of each tree. */
async function cpu(pids: readonly number[]): Promise<number[]> {
  const before = await Promise.all(pids.map(treeCpuMs));
  await sleep(CPU_WINDOW_MS);
  const after = await Promise.all(pids.map(treeCpuMs));
  return after.map((ms, index) => (ms - (before[index] ?? 0)) / (CPU_WINDOW_MS / 1000));
}

function planePid(cloud: Cloud): number {
  const pid = cloud.planePid();
  if (pid === undefined) throw new Error('the control plane does not run');
  return pid;
}

/** After this time the garbage of a start has been collected. */
async function settled(cloud: Cloud): Promise<void> {
  for (let count = 0; count < 50; count++) await cloud.request('GET', '/operations');
  await sleep(5000);
}

async function removeRows(cloud: Cloud, projectId: string): Promise<void> {
  const metadata = await openMetadata(cloud);
  await metadata.query('delete from services where project_id = $1', [projectId]);
  await metadata.end();
}
