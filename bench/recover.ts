/**
 * Services under load lose their machine and come back from a repository: how long that takes, and
 * which acknowledged writes are lost.
 */
import { chown, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RecoveryKit } from '@howdah/contract';
import type { Client } from 'pg';
import { isWalFile } from '../packages/server/src/engine/local/postgres/wal-files.ts';
import { listBackups } from '../packages/server/src/engine/local/repository/stanza.ts';
import { repositoryOptions } from '../packages/server/src/repository/options.ts';
import { findPgBackRest } from '../packages/server/src/repository/pgbackrest.ts';
import type { PgBackRest, Repository } from '../packages/server/src/repository/repository.ts';
import { repositoryOf } from '../packages/server/src/services/repository-secrets.ts';
import type { Bench, Context } from './lib/bench.ts';
import {
  call,
  connectOverTls,
  create,
  openCloud,
  untilStatus,
  type Cloud,
  type Service,
} from './lib/cloud.ts';
import { summarize, time } from './lib/measure.ts';
import { run } from './lib/run.ts';
import { bounded, compared, skipped, type Row } from './lib/table.ts';

/** Each has some 900 bytes. */
const ROWS_OF_A_MEGABYTE = 1092;
/** A pause between the writes of a client. */
const THINK_MS = 20;
/** Processes of pgBackRest, as Howdah has them. */
const PROCESSES = '2';
const DEADLINE_MS = 3_600_000;

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
  const repository = repositoryOf(parsed);
  const byHand = await time(() => restoreByHand(repository, away, program, written, temp));
  const gigabytes = byHand.result / 1e9;
  say(`   by hand: ${(byHand.ms / 1000).toFixed(1)} s for ${gigabytes.toFixed(2)} GB`);
  const ours = await time(async () => {
    expectSuccess(await cloud.cli('recover', kitFile));
    await cloud.up();
    for (const { service } of written) await untilStatus(cloud, service.id, 'READY');
  });
  const losses: { ms: number; promised: number }[] = [];
  for (const one of written) losses.push(await lossOf(cloud, one, lostMs, shown));
  await cloud.end();
  const perGb = (ms: number) => summarize([ms / 1000 / gigabytes]);
  return rowsOf(count, gigabytes, perGb(ours.ms), perGb(byHand.ms), losses);
}

function rowsOf(
  count: number,
  gigabytes: number,
  ours: ReturnType<typeof summarize>,
  theirs: ReturnType<typeof summarize>,
  losses: readonly { ms: number; promised: number }[],
): Row[] {
  const broken = losses.reduce((sum, { promised }) => sum + promised, 0);
  return [
    compared({
      goal: '',
      what: `howdah recover → ${count} services of ${gigabytes.toFixed(2)} GB READY, for a gigabyte`,
      unit: 's',
      ours,
      against: 'by hand, one after the other: pgbackrest restore, archive-get of each WAL file',
      theirs,
      ratio: 'ours/theirs',
      bound: { atMost: 1.3 },
      limit: 'ours also restores the control plane, recovers over the WAL and starts the servers',
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

/** Restores the newest backup of each service and gets its WAL. @returns the size of the data */
async function restoreByHand(
  repository: Repository,
  away: string,
  { program, user }: PgBackRest,
  written: readonly Written[],
  temp: string,
): Promise<number> {
  const { values } = repositoryOptions(repository);
  const env = Object.fromEntries(
    Object.entries({ ...values, 'process-max': PROCESSES, 'log-level-file': 'off' }).map(
      ([name, value]) => [`PGBACKREST_${name.toUpperCase().replaceAll('-', '_')}`, value],
    ),
  );
  let bytes = 0;
  for (const { service } of written) {
    const target = join(temp, `by-hand-${service.id}`);
    await mkdir(target, { mode: 0o700 });
    if (user !== null) await chown(target, user.uid, user.gid);
    const stanza = [`--stanza=${service.id}`, `--pg1-path=${target}`, '--no-config'];
    const pgbackrest = (...words: string[]) =>
      run(program, [...words, ...stanza], {
        env: { ...process.env, ...env },
        deadlineMs: DEADLINE_MS,
      });
    await pgbackrest('restore', '--type=none');
    const [newest] = await listBackups(
      { program: { program, version: '', user } },
      service.id,
      repository,
    );
    bytes += newest?.dataBytes ?? 0;
    const files = await readdir(join(away, 'archive', service.id), { recursive: true });
    const names = files.map((file) => file.split('/').at(-1)?.slice(0, 24) ?? '').filter(isWalFile);
    for (const name of names.filter((one) => one >= (newest?.firstWal ?? '')))
      await pgbackrest('archive-get', name, join(target, 'pg_wal', name));
    await rm(target, { recursive: true });
  }
  return bytes;
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
