/**
 * Services under load lose their machine and come back from a repository: how long that takes, and
 * which acknowledged writes are lost.
 */
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RecoveryKit } from '@howdah/contract';
import type { Client } from 'pg';
import { findPgBackRest } from '../packages/server/src/repository/pgbackrest.ts';
import type { PgBackRest } from '../packages/server/src/repository/repository.ts';
import { repositoryOf } from '../packages/server/src/services/repositories.ts';
import { bareKit } from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import {
  call,
  connectOverTls,
  create,
  openCloud,
  selectOverTls,
  stepsOf,
  untilStatus,
  type Cloud,
  type Service,
} from './lib/cloud.ts';
import { round, stopwatch, summarize } from './lib/measure.ts';
import { restoreByHand, type ByHand } from './lib/restore-by-hand.ts';
import { bounded, compared, skipped, type Row } from './lib/table.ts';

/** Each has some 900 bytes. */
const ROWS_OF_A_MEGABYTE = 1092;
/** A pause between the writes of a client. */
const THINK_MS = 20;

/** A service, a client that writes without end, and every write that was acknowledged. */
type Written = {
  service: Service;
  client: Client;
  acknowledged: { n: number; atMs: number }[];
};

export const recover: Bench = {
  name: 'recover',
  title: 'a lost machine under load comes back from a repository',
  run: async (context) => {
    const program = await findPgBackRest();
    if (program === null)
      return [skipped('', 'recovery', 'pgBackRest is missing (apt-get install pgbackrest)')];
    return measure(context, program);
  },
};

async function measure(context: Context, program: PgBackRest): Promise<Row[]> {
  const { here, temp, services: count, sizesMb, say } = context;
  const cloud = await openCloud(here.directory);
  const away = join(temp, 'repository');
  await mkdir(away);
  const written: Written[] = [];
  for (let n = 0; n < count; n++) written.push(await makeWritten(cloud, sizesMb[0] ?? 10));
  expectSuccess(await cloud.cli('repo', 'add', 'offsite', '--path', away));
  const loads = written.map((one) => write(one));
  const begunMs = Date.now();
  for (const { service } of written)
    while ((await shownMs(cloud, service)) < begunMs) await sleep(500);
  await untilControlSaved(cloud);
  const shown = new Map<string, number>();
  for (const { service } of written) shown.set(service.id, await shownMs(cloud, service));
  const bare = await bareKit(cloud);
  const kit = await cloud.cli('repo', 'kit', 'offsite');
  const kitFile = join(temp, 'kit.json');
  await writeFile(kitFile, kit.stdout);
  say(`   ${count} services are backed up; the machine is lost`);

  await cloud.stop('SIGKILL');
  const lostMs = Date.now();
  expectSuccess(await cloud.cli('down', '--databases'));
  await Promise.all(loads);
  for (const entry of await readdir(cloud.home))
    await rm(join(cloud.home, entry), { recursive: true, force: true });

  // As the command line has just printed it.
  const parsed: RecoveryKit = JSON.parse(kit.stdout);
  const ids = written.map(({ service }) => service.id);
  const source = { program, repository: repositoryOf(parsed), directory: away };
  const byHand = await restoreByHand(bare, source, ids);
  const gigabytes = byHand.bytes / 1e9;
  say(
    `   by hand: ${round(byHand.filesMs / 1000)} s for ${round(gigabytes)} GB, ` +
      `${round(byHand.loginMs / 1000)} s until a login`,
  );
  const ours = stopwatch();
  expectSuccess(await cloud.cli('recover', kitFile));
  ours.lap('howdah recover');
  await cloud.up();
  ours.lap('howdah up');
  for (const { service } of written) {
    await untilStatus(cloud, service.id, 'READY');
    await selectOverTls(cloud.ca, service.port, service.password);
  }
  ours.lap('services');
  const { value: oursMs, parts } = ours.sample();
  say(`   ours: ${inWords({ ...parts, ...(await medianSteps(cloud, ids)) })}`);
  const losses: { ms: number; promised: number }[] = [];
  for (const one of written) losses.push(await lossOf(cloud, one, lostMs, shown));
  await cloud.end();
  return rowsOf(count, oursMs, byHand, losses);
}

const inWords = (partsMs: Readonly<Record<string, number>>): string =>
  Object.entries(partsMs)
    .map(([part, ms]) => `${part} ${round(ms / 1000)} s`)
    .join(', ');

/** The medians of the steps of the services' newest operations, by their names. */
async function medianSteps(cloud: Cloud, ids: readonly string[]): Promise<Record<string, number>> {
  const durations = new Map<string, number[]>();
  for (const id of ids)
    for (const [step, ms] of Object.entries(await stepsOf(cloud, id)))
      durations.set(step, [...(durations.get(step) ?? []), ms]);
  return Object.fromEntries(
    [...durations].map(([step, values]) => [`median ${step}`, summarize(values).median]),
  );
}

function rowsOf(
  count: number,
  oursMs: number,
  { bytes, filesMs, loginMs }: ByHand,
  losses: readonly { ms: number; promised: number }[],
): Row[] {
  const gigabytes = bytes / 1e9;
  const perGb = (ms: number) => summarize([ms / 1000 / gigabytes]);
  const broken = losses.reduce((sum, { promised }) => sum + promised, 0);
  const figure = {
    goal: '',
    what:
      `howdah recover → a login at ${count} services of ` +
      `${gigabytes.toFixed(2)} GB, for a gigabyte`,
    unit: 's',
    ours: perGb(oursMs),
    ratio: 'ours/theirs',
    bound: { atMost: 1.3 },
  } as const;
  return [
    compared({
      ...figure,
      against: 'by hand, one after the other: pgbackrest restore, archive-get of each WAL file',
      theirs: perGb(filesMs),
      limit: 'ours also restores the control plane, recovers over the WAL and starts the servers',
    }),
    compared({
      ...figure,
      against: 'by hand until a login: the same, then start, recovery over the WAL and a SELECT',
      theirs: perGb(loginMs),
      limit: 'ours also restores the control plane',
    }),
    bounded({
      goal: '',
      what: 'acknowledged writes that are lost: the time from the oldest of a service to the loss',
      unit: 's',
      ours: summarize(losses.map(({ ms }) => ms / 1000)),
      bound: { atMost: 60 },
      limit: 'archive_timeout is 60 s; a WAL file is sent within 5 s',
    }),
    bounded({
      goal: '',
      what: 'lost writes from before the moment that was shown as safe',
      unit: 'writes',
      ours: summarize([broken]),
      bound: { atMost: 0 },
      limit: '',
    }),
  ];
}

async function makeWritten(cloud: Cloud, megabytes: number): Promise<Written> {
  const service = await create(cloud);
  const client = await connectOverTls(cloud.ca, service.port, service.password);
  // The loss of the machine ends its connections.
  client.on('error', () => undefined);
  await client.query(
    `create table filled as select g, repeat(md5(g::text), 28) as t
     from generate_series(1, ${megabytes * ROWS_OF_A_MEGABYTE}) g`,
  );
  await client.query('create table written (n int primary key)');
  return { service, client, acknowledged: [] };
}

/** Ends with the server. */
async function write({ client, acknowledged }: Written): Promise<void> {
  for (let n = 1; ; n++) {
    const isWritten = await client.query('insert into written values ($1)', [n]).then(
      () => true,
      () => false,
    );
    if (!isWritten) return;
    acknowledged.push({ n, atMs: Date.now() });
    await sleep(THINK_MS);
  }
}

/** The moment up to which everything is shown to be in the repository; 0: none yet. */
async function shownMs(cloud: Cloud, { id }: Service): Promise<number> {
  const { text } = await call(cloud, 'GET', `/services/${id}/backupStatus`);
  const [state]: unknown[] = [Reflect.get(Object(JSON.parse(text)), 'off_machine')].flat();
  const latest: unknown = Reflect.get(Object(state), 'latest');
  return typeof latest === 'string' ? Date.parse(latest) : 0;
}

async function untilControlSaved(cloud: Cloud): Promise<void> {
  for (;;) {
    const { stdout } = await cloud.cli('repo', 'show', 'offsite', '-o', 'json');
    if (!stdout.includes('"control_saved": null')) return;
    await sleep(500);
  }
}

async function lossOf(
  cloud: Cloud,
  { service, acknowledged }: Written,
  lostMs: number,
  shown: ReadonlyMap<string, number>,
): Promise<{ ms: number; promised: number }> {
  const client = await connectOverTls(await cloud.caPem(), service.port, service.password);
  const { rows } = await client.query<{ n: number }>('select n from written');
  await client.end();
  const found = new Set(rows.map(({ n }) => n));
  const lost = acknowledged.filter(({ n }) => !found.has(n));
  const safeMs = shown.get(service.id) ?? 0;
  return {
    ms: lostMs - (lost[0]?.atMs ?? lostMs),
    promised: lost.filter(({ atMs }) => atMs <= safeMs).length,
  };
}

function expectSuccess({ code, stderr }: { code: number | null; stderr: string }): void {
  if (code !== 0) throw new Error(stderr);
}
