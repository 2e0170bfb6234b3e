/**
 * Seconds for a gigabyte of WAL: a fork at a point in time against the crash recovery of the same
 * WAL by hand.
 */
import { chown, copyFile, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  bareKit,
  kitOfService,
  makeDirectories,
  removeBare,
  startBare,
  writeFiles,
  connectBare,
  type BareKit,
} from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import { atEnd } from './lib/cleanup.ts';
import { openCloud, remove, type Cloud } from './lib/cloud.ts';
import { copyData } from './lib/copies.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { initialise, startLoad } from './lib/load.ts';
import {
  interleave,
  measured,
  partsInWords,
  stopwatch,
  valuesOf,
  type Sample,
} from './lib/measure.ts';
import { has, run } from './lib/run.ts';
import { forkAndSelect, makeSource, ROOMY, trim, type Source } from './lib/source.ts';
import { compared, skipped, type Row } from './lib/table.ts';

const WAL_BYTES = 1e9;
/** Each sample replays a gigabyte. */
const MOST_ROUNDS = 4;

export const pitr: Bench = {
  name: 'pitr',
  title: 'a fork at a point in time, for a gigabyte of WAL',
  run: async (context) => {
    if (!(await has('pgbench')))
      return [
        skipped('', 'point in time', 'pgbench is missing (apt-get install postgresql-contrib)'),
      ];
    const rows: Row[] = [];
    for (const fileSystem of await context.fileSystems()) {
      if (typeof fileSystem === 'string') rows.push(skipped('', 'point in time', fileSystem));
      else rows.push(...(await onFileSystem(context, fileSystem)));
    }
    return rows;
  },
};

async function onFileSystem(
  { rounds, temp, say }: Context,
  { name, directory }: FileSystem,
): Promise<Row[]> {
  say(`   on ${name}`);
  const cloud = await openCloud(directory);
  const ofOthers = await bareKit(cloud);
  const source = await makeSource(cloud, ofOthers, null, ROOMY);
  const kit = kitOfService(ofOthers, source.paths);
  // Both begin with a copy of the same minute: our fork with its initial snapshot, the server by
  // hand with a copy of files.
  const base = await makeDirectories(kit);
  const forget = atEnd(() => removeBare(kit, base));
  await copyData(kit, source, base.paths.data, 'bytes');
  const gigabytes = (await writeWal(source, temp)) / 1e9;
  const targetTime = await momentOf(source);
  await source.admin.query('checkpoint');
  source.admin.connection.stream.destroy();
  const ours = measured(() => forkAt(cloud, source, targetTime, gigabytes));
  const floor = measured(() => recoverByHand(kit, source, base.paths.data, gigabytes));
  await interleave(Math.min(rounds, MOST_ROUNDS), [ours, floor]);
  await forget();
  await cloud.end();
  return [
    compared({
      goal: '',
      what:
        'fork at a point in time → SELECT, for a gigabyte of WAL (of ' +
        `${gigabytes.toFixed(2)} GB), ${name} (${kit.machine.cloneMethod})`,
      unit: 's',
      ours: valuesOf(ours),
      against: 'by hand: crash recovery of the same WAL until the first SELECT, without TLS',
      theirs: valuesOf(floor),
      ratio: 'ours/theirs',
      bound: null,
      limit:
        `in all, ms of ours: ${partsInWords(ours)}; by hand: ${partsInWords(floor)}; ` +
        'a program is started for each 16 MB from the archive',
    }),
  ];
}

/**
 * Runs pgbench until there is so much WAL.
 *
 * @returns its bytes
 */
async function writeWal(source: Source, temp: string): Promise<number> {
  const written = async (): Promise<number> => {
    const { rows } = await source.admin.query<{ bytes: string }>(
      'select pg_wal_lsn_diff(pg_current_wal_lsn(), $1) as bytes',
      [begin],
    );
    return Number(rows[0]?.bytes);
  };
  const { rows } = await source.admin.query<{ lsn: string }>(
    'select pg_current_wal_lsn()::text as lsn',
  );
  const begin = rows[0]?.lsn ?? '0/0';
  await initialise(source);
  const load = await startLoad(source, temp, null);
  while ((await written()) < WAL_BYTES) await new Promise((resolve) => setTimeout(resolve, 200));
  await load.end();
  return written();
}

async function momentOf(source: Source): Promise<string> {
  const { rows } = await source.admin.query<{ now: string }>(
    `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
  );
  return rows[0]?.now ?? '';
}

async function forkAt(
  cloud: Cloud,
  source: Source,
  targetTime: string,
  gigabytes: number,
): Promise<Sample> {
  const { fork, sample } = await forkAndSelect(cloud, source.service, {
    fork_strategy: 'PITR',
    target_time: targetTime,
  });
  await remove(cloud, fork.id);
  await trim(source.paths.root);
  return { value: sample.value / 1000 / gigabytes, parts: sample.parts };
}

/** Starts the copy with all WAL in its place: it recovers as after a crash. */
async function recoverByHand(
  kit: BareKit,
  source: Source,
  base: string,
  gigabytes: number,
): Promise<Sample> {
  const server = await makeDirectories(kit);
  const forget = atEnd(() => removeBare(kit, server));
  const { data } = server.paths;
  await run('cp', ['-a', base, data]);
  const wal = join(data, 'pg_wal');
  await rm(wal, { recursive: true });
  await mkdir(wal, { mode: 0o700 });
  const owned = [wal];
  // Newer ones last: the file in place is the last, which is not archived before it is full.
  for (const directory of [source.paths.archive, join(source.paths.data, 'pg_wal')]) {
    for (const file of (await readdir(directory)).filter((entry) => /^[0-9A-F]{24}$/.test(entry))) {
      await copyFile(join(directory, file), join(wal, file));
      owned.push(join(wal, file));
    }
  }
  const { owner } = kit.machine;
  if (owner !== null) for (const path of owned) await chown(path, owner.uid, owner.gid);
  await writeFiles(kit, server, 'ours');
  await run('sync', ['-f', data]);
  const watch = stopwatch();
  await startBare(kit, server);
  watch.lap('start');
  const client = await connectBare(server);
  await client.query('select 1');
  watch.lap('SELECT');
  const { value, parts } = watch.sample();
  client.connection.stream.destroy();
  await forget();
  await trim(source.paths.root);
  return { value: value / 1000 / gigabytes, parts };
}
