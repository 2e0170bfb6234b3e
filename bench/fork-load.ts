/**
 * G5: forks of a source under write load: their duration, the delay of the source's transactions,
 * and whether their data is consistent.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createLayout } from '../packages/server/src/engine/local/host/layout.ts';
import { join } from 'node:path';
import { bareKit } from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import { openCloud, remove, type Cloud, type Service } from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import {
  interleave,
  measured,
  partsInWords,
  valuesOf,
  type Case,
  type Sample,
  type Summary,
} from './lib/measure.ts';
import { inconsistencies, initialise, RATE, startLoad, type Transaction } from './lib/load.ts';
import { has } from './lib/run.ts';
import {
  connectAsControl,
  forkAndSelect,
  forkOurs,
  makeSource,
  ROOMY,
  trim,
  type Source,
} from './lib/source.ts';
import { bounded, compared, skipped, type Row } from './lib/table.ts';

/** Forks that are requested at the same time at the end. */
const AT_ONCE = 10;
/** How long the source is watched without a fork before each one: about as long as one takes. */
const QUIET_MS = 1000;
/** The first and the last moments of a load are left out: it is not steady then. */
const SETTLE_MS = 500;

export const forkLoad: Bench = {
  name: 'fork-load',
  title: `G5: forks of a source under ${RATE} transactions a second`,
  run: async (context) => {
    if (!(await has('pgbench')))
      return [
        skipped('G5', 'fork under load', 'pgbench is missing (apt-get install postgresql-contrib)'),
      ];
    const rows: Row[] = [];
    for (const fileSystem of await context.fileSystems()) {
      if (typeof fileSystem === 'string') rows.push(skipped('G5', 'fork under load', fileSystem));
      else rows.push(...(await onFileSystem(context, fileSystem)));
    }
    return rows;
  },
};

type Round = {
  quiet: Transaction[];
  forking: Transaction[];
  failed: number;
  problems: string[];
  sample: Sample;
};

async function onFileSystem(context: Context, { name, directory }: FileSystem): Promise<Row[]> {
  context.say(`   on ${name}`);
  const cloud = await openCloud(directory);
  const kit = await bareKit(cloud);
  const source = await makeSource(cloud, kit, null, ROOMY);
  await initialise(source);
  const rounds: Round[] = [];
  const idle = measured(() => forkOurs(cloud, source));
  const loaded = measured(async () => {
    const round = await forkUnderLoad(cloud, source, context.temp);
    rounds.push(round);
    return round.sample;
  });
  await interleave(context.rounds, [idle, loaded]);
  const crowd = await forkAtOnce(cloud, source, context.temp);
  source.admin.connection.stream.destroy();
  await cloud.end();
  const kept = rounds.slice(1);
  return rowsOf(`${name} (${kit.machine.cloneMethod})`, idle, loaded, kept, crowd);
}

function rowsOf(
  where: string,
  idle: Case,
  loaded: Case,
  rounds: readonly Round[],
  crowd: Crowd,
): Row[] {
  const quiet = rounds.flatMap((round) => round.quiet.map(({ tookMs }) => tookMs));
  const forking = rounds.flatMap((round) => round.forking.map(({ tookMs }) => tookMs));
  const failed = rounds.reduce((sum, round) => sum + round.failed, crowd.failed);
  const problems = [...rounds.flatMap((round) => round.problems), ...crowd.problems];
  const forks = rounds.length + AT_ONCE;
  const one = (value: number): Summary => ({ median: value, min: value, max: value, n: 1 });
  const latency = (percent: number): Row =>
    compared({
      goal: '',
      what: `p${percent} of ${forking.length} transactions at ${RATE}/s during a fork, ${where}`,
      unit: 'ms',
      ours: one(percentile(forking, percent)),
      against: `of ${quiet.length} in the seconds before`,
      theirs: one(percentile(quiet, percent)),
      ratio: 'ours/theirs',
      bound: null,
      limit: 'the cores and the disk are shared with the fork that starts',
    });
  const slowest = ({ forking: of }: Round) => Math.round(Math.max(...of.map((t) => t.tookMs)));
  return [
    compared({
      goal: 'G5',
      what: `fork at ${RATE} transactions a second → SELECT, ${where}`,
      unit: 'ms',
      ours: valuesOf(loaded),
      against: 'the same fork while the source is idle',
      theirs: valuesOf(idle),
      ratio: 'ours/theirs',
      bound: { atMost: 2 },
      limit: `ms under load: ${partsInWords(loaded)}; idle: ${partsInWords(idle)}`,
    }),
    latency(50),
    latency(99),
    bounded({
      goal: 'G5',
      what: `slowest transaction of the source during ${rounds.length} forks, ${where}`,
      unit: 'ms',
      ours: one(Math.max(...forking)),
      bound: { atMost: 150 },
      limit: `of each fork: ${rounds.map(slowest).join(', ')}`,
    }),
    bounded({
      goal: 'G5',
      what:
        `failed transactions of the source during ${forks} forks, ` +
        `${AT_ONCE} of them at once, ${where}`,
      unit: 'transactions',
      ours: one(failed),
      bound: { atMost: 0 },
      limit:
        `all ${AT_ONCE} READY after ${Math.round(crowd.tookMs)} ms, ` +
        `slowest transaction meanwhile ${Math.round(crowd.slowestMs)} ms`,
    }),
    bounded({
      goal: 'G5',
      what:
        `forks of ${forks} whose four sums of TPC-B differ or in which amcheck ` +
        `finds anything, ${where}`,
      unit: 'forks',
      ours: one(problems.length),
      bound: { atMost: 0 },
      limit: problems.slice(0, 3).join('; '),
    }),
  ];
}

async function forkUnderLoad(cloud: Cloud, source: Source, temp: string): Promise<Round> {
  const load = await startLoad(source, temp, RATE);
  await sleep(SETTLE_MS);
  const fromMs = Date.now();
  await sleep(QUIET_MS);
  const begunMs = Date.now();
  const { fork, sample } = await forkAndSelect(cloud, source.service, { fork_strategy: 'NOW' });
  const endedMs = Date.now();
  // Transactions that the fork delayed may end after it.
  await sleep(SETTLE_MS);
  const { transactions, failed } = await load.end();
  const problems = await check(cloud, fork);
  await remove(cloud, fork.id);
  await trim(source.paths.root);
  return {
    quiet: transactions.filter(({ endedMs: at }) => at >= fromMs && at < begunMs),
    forking: transactions.filter(
      ({ endedMs: at, tookMs }) => at >= begunMs && at - tookMs <= endedMs,
    ),
    failed,
    problems,
    sample,
  };
}

type Crowd = { tookMs: number; slowestMs: number; failed: number; problems: string[] };

async function forkAtOnce(cloud: Cloud, source: Source, temp: string): Promise<Crowd> {
  const load = await startLoad(source, temp, RATE);
  await sleep(SETTLE_MS);
  const begunMs = Date.now();
  const forks = await Promise.all(
    Array.from({ length: AT_ONCE }, () =>
      forkAndSelect(cloud, source.service, { fork_strategy: 'NOW' }),
    ),
  );
  const tookMs = Date.now() - begunMs;
  await sleep(SETTLE_MS);
  const { transactions, failed } = await load.end();
  const problems: string[] = [];
  for (const { fork } of forks) {
    problems.push(...(await check(cloud, fork)));
    await remove(cloud, fork.id);
  }
  const meanwhile = transactions
    .filter(({ endedMs: at }) => at >= begunMs)
    .map((transaction) => transaction.tookMs);
  return { tookMs, slowestMs: Math.max(...meanwhile), failed, problems };
}

async function check(cloud: Cloud, fork: Service): Promise<string[]> {
  const client = await connectAsControl(
    createLayout(join(cloud.home, 'data')).service(fork.id).socket,
    fork.port,
  );
  const found = await inconsistencies(client);
  client.connection.stream.destroy();
  return found.length === 0 ? [] : [`${fork.id}: ${found.join(', ')}`];
}

function percentile(values: readonly number[], percent: number): number {
  return (
    values.toSorted((a, b) => a - b)[Math.ceil((values.length * percent) / 100) - 1] ?? Number.NaN
  );
}
