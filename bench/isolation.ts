/**
 * The cost of a server's mount and IPC namespaces: its start, and pgbench, beside the same server
 * with a PID namespace alone.
 */
import {
  findServer,
  launch,
  stopServer,
  waitUntilReady,
  PLAIN_START,
} from '../packages/server/src/engine/local/postgres/server.ts';
import type { Machine } from '../packages/server/src/engine/local/host/machine-record.ts';
import { bareKit, makeBare, type BareKit, type BareServer } from './lib/bare.ts';
import type { Bench } from './lib/bench.ts';
import { openCloud } from './lib/cloud.ts';
import { idle, interleave, measured, partOf, stopwatch, type Sample } from './lib/measure.ts';
import { run } from './lib/run.ts';
import { compared, skipped } from './lib/table.ts';

const SECONDS = 10;

export const isolation: Bench = {
  name: 'isolation',
  title: 'namespaces of a server: start, pgbench',
  run: async ({ here, rounds }) => {
    const cloud = await openCloud(here.directory);
    const kit = await bareKit(cloud);
    const { sandbox } = kit.machine;
    if (sandbox.way === 'none') return [skipped('', 'namespaces of a server', sandbox.note)];
    const server = await makeBare(kit, 'ours');
    await run('pgbench', ['--version']);
    const enclosed = measured(() => startAndLoad(kit, kit.machine, server));
    const plain = measured(() =>
      startAndLoad(kit, { ...kit.machine, sandbox: { way: 'none', note: '' } }, server),
    );
    await interleave(rounds, [enclosed, plain]);
    await cloud.end();
    const row = { goal: '', against: 'with a PID namespace alone', ratio: 'ours/theirs' } as const;
    return [
      compared({
        ...row,
        what: `launch → ready, ${here.name}`,
        unit: 'ms',
        ours: partOf(enclosed, 'ready'),
        theirs: partOf(plain, 'ready'),
        bound: { atMost: 1, plus: 10 },
        limit: 'programs that are started: mount, pivot_root, umount',
      }),
      compared({
        ...row,
        what: `pgbench TPC-B, 4 clients, ${SECONDS} s, ${here.name}`,
        unit: 'ms a transaction',
        ours: partOf(enclosed, 'transaction'),
        theirs: partOf(plain, 'transaction'),
        bound: { atMost: 1.03 },
        limit: '',
      }),
    ];
  },
};

async function startAndLoad(
  { installation }: BareKit,
  machine: Machine,
  { paths, port }: BareServer,
): Promise<Sample> {
  await idle();
  const watch = stopwatch();
  await launch(machine, machine.owner, paths, installation.bin, PLAIN_START);
  const state = await waitUntilReady(paths, 60_000);
  watch.lap('ready');
  const server = await findServer(paths);
  if (state !== 'ready' || server === null) throw new Error('the server did not start');
  const words = ['-h', paths.socket, '-p', String(port), '-U', 'howdah'];
  await run('pgbench', [...words, '-i', '-q', '-s', '10', 'postgres']);
  const said = await run('pgbench', [
    ...words,
    '-c',
    '4',
    '-j',
    '2',
    '-T',
    String(SECONDS),
    'postgres',
  ]);
  const latencyMs = Number(/latency average = ([0-9.]+) ms/.exec(said)?.[1]);
  await stopServer(machine, server, 'fast', 60_000);
  return { value: 0, parts: { ...watch.parts, transaction: latencyMs } };
}
