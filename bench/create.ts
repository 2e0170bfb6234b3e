/**
 * G1: from the create's request to the first row over TLS, without a spare, against the same steps
 * by hand and pg_createcluster.
 */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { bareKit, createBare } from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import { atEnd } from './lib/cleanup.ts';
import { createAndSelect, openCloud, remove, stepsOf, type Cloud } from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import {
  interleave,
  measured,
  partsInWords,
  stopwatch,
  valuesOf,
  type Sample,
} from './lib/measure.ts';
import { freePort, has, run } from './lib/run.ts';
import { compared, skipped, type Row } from './lib/table.ts';

export const create: Bench = {
  name: 'create',
  title: 'G1: create → first SELECT over TLS, without a spare',
  run: async (context) => {
    const rows: Row[] = [];
    for (const fileSystem of [
      context.here,
      await context.loop('xfs'),
      await context.loop('btrfs'),
    ]) {
      if (typeof fileSystem === 'string') rows.push(skipped('G1', 'create', fileSystem));
      else rows.push(...(await onFileSystem(context, fileSystem)));
    }
    return rows;
  },
};

async function onFileSystem(
  { rounds, say }: Context,
  { name, directory }: FileSystem,
): Promise<Row[]> {
  say(`   on ${name}`);
  const cloud = await openCloud(directory);
  const kit = await bareKit(cloud);
  const ours = measured(() => createOurs(cloud));
  const shared = measured(() => createOurs(cloud, { cpu_millis: 'shared', memory_gbs: 'shared' }));
  const floor = measured(() => createBare(kit, 'ours'));
  const small = measured(() => createBare(kit, 'small'));
  const cluster = await systemMajor();
  const peer = measured(() => createCluster(cluster ?? '', directory));
  await interleave(rounds, [ours, floor, small, shared, ...(cluster === null ? [] : [peer])]);
  await cloud.end();
  const what = `create → SELECT, ${name} (${kit.machine.cloneMethod})`;
  const timesFaster = kit.machine.cloneMethod === 'subvolume' ? 20 : 12;
  const row = { goal: 'G1', unit: 'ms', ours: valuesOf(ours), ratio: 'ours/theirs' } as const;
  return [
    compared({
      ...row,
      what,
      against: 'by hand, the same settings',
      theirs: valuesOf(floor),
      bound: { atMost: 1.3 },
      limit: `ms of ours: ${partsInWords(ours)}; of the floor: ${partsInWords(floor)}`,
    }),
    compared({
      ...row,
      what: `${what}, size shared`,
      ours: valuesOf(shared),
      against: 'by hand, PostgreSQL’s defaults with shared_buffers=16MB',
      theirs: valuesOf(small),
      bound: { atMost: 1.3 },
      limit: `ms of ours: ${partsInWords(shared)}; of the floor: ${partsInWords(small)}`,
    }),
    cluster === null
      ? skipped(
          'G1',
          `pg_createcluster, ${name}`,
          'postgresql-common or its server is missing (apt-get install postgresql)',
        )
      : compared({
          ...row,
          what,
          against: `pg_createcluster + pg_ctlcluster ${cluster}, no TLS`,
          theirs: valuesOf(peer),
          ratio: 'theirs/ours',
          bound: { atLeast: timesFaster },
          limit: `of the peer: ${partsInWords(peer)} (pg_ctlcluster sleeps)`,
        }),
  ];
}

async function createOurs(cloud: Cloud, body: object = {}): Promise<Sample> {
  const { service, sample } = await createAndSelect(cloud, body);
  const steps = await stepsOf(cloud, service.id);
  await remove(cloud, service.id);
  return { value: sample.value, parts: { ...sample.parts, ...steps } };
}

/** The newest major that Debian's tools can make a cluster of; null where they are missing. */
async function systemMajor(): Promise<string | null> {
  if (process.getuid?.() !== 0 || !(await has('pg_createcluster'))) return null;
  const majors = await readdir('/usr/lib/postgresql').catch(() => []);
  return majors.toSorted((a, b) => Number(b) - Number(a))[0] ?? null;
}

const CLUSTER = 'howdahbench';

async function createCluster(major: string, directory: string): Promise<Sample> {
  const top = await mkdtemp(join(directory, 'pgc-'));
  await run('chown', ['postgres:', top]);
  const port = await freePort();
  // A socket directory of its own: pg_dropcluster takes that away.
  const socket = join(top, 'run');
  await run('install', ['-d', '-o', 'postgres', socket]);
  const forget = atEnd(async () => {
    await run('pg_dropcluster', ['--stop', major, CLUSTER]);
    await rm(top, { recursive: true, force: true });
  });
  const watch = stopwatch();
  await run('pg_createcluster', [
    major,
    CLUSTER,
    '-d',
    join(top, 'data'),
    '-l',
    join(top, 'log'),
    '-s',
    socket,
    '-p',
    String(port),
    '--',
    '--auth-local=trust',
    '--auth-host=scram-sha-256',
  ]);
  watch.lap('pg_createcluster');
  await run('pg_ctlcluster', [major, CLUSTER, 'start']);
  watch.lap('pg_ctlcluster');
  const client = new Client({ host: socket, port, user: 'postgres', database: 'postgres' });
  await client.connect();
  await client.query('select 1');
  watch.lap('SELECT');
  const sample = watch.sample();
  await client.end();
  await forget();
  return sample;
}
