/**
 * `npm run soak:failover [-- --rounds N --seed N]`: failovers of a synchronous pair under a load
 * and a sampler, one after the other. Ends with 1 when an acknowledged write is lost or two members
 * took writes.
 */
import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { install } from './harness.ts';
import {
  layoutOf,
  postmasterOf,
  startLoad,
  startSampler,
  untilPrimary,
  untilRedundant,
} from './ha-load.ts';
import { childrenOf, signal } from './probe.ts';

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '300' }, seed: { type: 'string' } },
});
const rounds = Number(values.rounds);
const seed = Number(values.seed ?? randomInt(2 ** 31));

/** Numbers from 0 to below 1 that follow from the seed (mulberry32). */
let state = seed;
function chance(): number {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}

const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
const cloud = await install({ HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0' });
const created = await cloud.create({
  name: 'soak',
  service_type: 'POSTGRES',
  replica_count: 1,
  sync_replica_count: 1,
});
const load = await startLoad(cloud, created);
const sampler = startSampler(cloud, created);
const gapsMs: Record<'killed' | 'stopped', number[]> = { killed: [], stopped: [] };
for (let round = 0; round < rounds; round++) {
  await untilRedundant(cloud, created, 1, 1);
  await sleep(chance() * 200);
  const primary = layoutOf(cloud).primaryOf(created.service_id);
  const postmaster = await postmasterOf(cloud, created, primary);
  const kind = chance() < 0.1 ? 'stopped' : 'killed';
  const all = kind === 'stopped' ? [postmaster, ...(await childrenOf(postmaster))] : [postmaster];
  const injectedMs = performance.now();
  for (const pid of all) signal(pid, kind === 'stopped' ? 'SIGSTOP' : 'SIGKILL');
  await untilPrimary(cloud, created, 1 - primary);
  await load.goesOn();
  gapsMs[kind].push(load.longestGapMs(injectedMs));
  if (round % 20 === 19)
    process.stderr.write(
      `${round + 1} failovers, ${load.acknowledged.length} writes acknowledged\n`,
    );
}
const violations = await sampler.stop();
const lost = await load.stop();
const problems = [...violations, ...(await cloud.destroy())];
const quantile = (sorted: readonly number[], q: number): string =>
  (sorted[Math.ceil(sorted.length * q) - 1] ?? 0).toFixed(0);
const words = (times: readonly number[]): string => {
  const sorted = times.toSorted((a, b) => a - b);
  return (
    `write gap p50 ${quantile(sorted, 0.5)} ms, p99 ${quantile(sorted, 0.99)} ms, ` +
    `longest ${quantile(sorted, 1)} ms`
  );
};
process.stdout.write(
  `${rounds} failovers at ${commit}, seed ${seed}: ` +
    `${lost.length} of ${load.acknowledged.length} acknowledged writes lost, ` +
    `${violations.length} of ${sampler.samples()} samples with two writers\n` +
    `  ${gapsMs.killed.length} killed: ${words(gapsMs.killed)}\n` +
    `  ${gapsMs.stopped.length} stopped: ${words(gapsMs.stopped)}\n`,
);
for (const problem of problems) process.stdout.write(`${problem}\n`);
process.exitCode = lost.length + problems.length === 0 ? 0 : 1;
