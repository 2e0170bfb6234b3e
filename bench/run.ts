/**
 * `npm run bench [name…] [-- --rounds N --patience SECONDS --sizes MB,… --services N --scale N
 * --seconds N --on NAME,…]`: measures and prints a table. bench/README.md says what each figure
 * means.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf } from '@howdah/contract/thrown';
import { crash } from './crash.ts';
import { create } from './create.ts';
import { fleet } from './fleet.ts';
import { fleetSimulated } from './fleet-simulated.ts';
import { fork } from './fork.ts';
import { forkLoad } from './fork-load.ts';
import { forkTables } from './fork-tables.ts';
import { failover } from './failover.ts';

import { get } from './get.ts';
import type { Bench, Context } from './lib/bench.ts';
import { atEnd, cleanUp, cleanUpOnSignals } from './lib/cleanup.ts';
import {
  hereAsItIs,
  isLoop,
  loopFileSystem,
  type FileSystem,
  type Loop,
} from './lib/filesystems.ts';
import { setIdlePatience } from './lib/measure.ts';
import { run } from './lib/run.ts';
import { markdown, skipped, type Row } from './lib/table.ts';
import { isolation } from './isolation.ts';
import { kubeCreate, kubeFork, kubeForkRunning, kubeGet, kubeMany } from './kube.ts';
import { kubeFailover } from './kube-failover.ts';
import { kubeFleet } from './kube-fleet.ts';
import { lease } from './lease.ts';
import { list } from './list.ts';
import { many } from './many.ts';
import { memory } from './memory.ts';
import { pitr } from './pitr.ts';
import { plain } from './plain.ts';
import { pooler } from './pooler.ts';
import { power } from './power.ts';
import { recover } from './recover.ts';
import { reset } from './reset.ts';
import { spare } from './spare.ts';
import { up } from './up.ts';
import { wake } from './wake.ts';

const BENCHES: readonly Bench[] = [
  up,
  create,
  spare,
  wake,
  many,
  power,
  fork,
  forkTables,
  forkLoad,
  reset,
  lease,
  pitr,
  get,
  list,
  fleet,
  fleetSimulated,
  memory,
  crash,
  pooler,
  failover,
  isolation,
  plain,
  recover,
  kubeCreate,
  kubeFork,
  kubeForkRunning,
  kubeMany,
  kubeGet,
  kubeFleet,
  kubeFailover,
];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '10' },
    patience: { type: 'string', default: '15' },
    sizes: { type: 'string', default: '10,100,1000' },
    services: { type: 'string', default: '20' },
    scale: { type: 'string', default: '20' },
    seconds: { type: 'string', default: '5' },
    on: { type: 'string', default: 'here,xfs,btrfs' },
  },
});
const rounds = Number(values.rounds);
const services = Number(values.services);
const scale = Number(values.scale);
const seconds = Number(values.seconds);
const sizesMb = values.sizes.split(',').map(Number);
const on = values.on.split(',');
const unknown = positionals.filter((name) => !BENCHES.some((bench) => bench.name === name));
const bad =
  !Number.isInteger(rounds) ||
  rounds < 2 ||
  ![services, scale, seconds].every((value) => Number.isInteger(value) && value >= 1) ||
  !sizesMb.every((size) => Number.isInteger(size) && size >= 0);
if (unknown.length > 0 || bad || !on.every((name) => name === 'here' || isLoop(name))) {
  process.stderr.write(
    'usage: npm run bench [name…] [-- --rounds N --patience SECONDS --sizes 10,100,1000 ' +
      '(MB of sources of forks) --services 20 (that are recovered) --scale 20 ' +
      '--seconds 5 (of pgbench in plain) --on here,xfs,btrfs]\n',
  );
  for (const { name, title } of BENCHES) process.stderr.write(`  ${name.padEnd(12)}${title}\n`);
  process.exit(2);
}

setIdlePatience(Number(values.patience) * 1000);
cleanUpOnSignals();
const say = (text: string): void => void process.stderr.write(`${text}\n`);
const temp = await mkdtemp(join(tmpdir(), 'hb-'));
await chmod(temp, 0o755);
atEnd(() => rm(temp, { recursive: true, force: true }));

const rows: Row[] = [];
try {
  await run(process.execPath, ['tools/build/build.js'], { cwd: join(import.meta.dirname, '..') });
  const loops = new Map<Loop, Promise<FileSystem | string>>();
  const here = await hereAsItIs(temp);
  const loop = async (kind: Loop): Promise<FileSystem | string> => {
    const known = loops.get(kind) ?? loopFileSystem(temp, kind);
    loops.set(kind, known);
    return known;
  };
  const fileSystems = () => Promise.all(on.map(async (name) => (isLoop(name) ? loop(name) : here)));
  const context: Context = {
    temp,
    rounds,
    sizesMb,
    services,
    scale,
    seconds,
    here,
    loop,
    fileSystems,
    say,
  };
  for (const bench of BENCHES) {
    if (positionals.length > 0 && !positionals.includes(bench.name)) continue;
    say(`── ${bench.name}: ${bench.title}`);
    try {
      const found = await bench.run(context);
      rows.push(...found);
      say(markdown(found));
    } catch (error) {
      say(error instanceof Error ? (error.stack ?? error.message) : String(error));
      rows.push(skipped(bench.name, bench.title, `failed: ${messageOf(error)}`));
      process.exitCode = 1;
    }
  }
} finally {
  await cleanUp();
}
const [cpu] = cpus();
process.stdout.write(
  `${new Date().toISOString().slice(0, 10)}, ${cpus().length} × ${cpu?.model ?? 'CPU'}, ` +
    `${Math.round(totalmem() / 1e9)} GB, Node ${process.version}; median (min–max)\n\n` +
    `${markdown(rows)}\n`,
);
process.exit();
