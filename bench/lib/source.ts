/**
 * Services with data, to be forked; the data is written by hand, without WAL, as
 * fast as the disk allows.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DEFAULT_SIZE, type Size } from '@howdah/contract';
import { Client } from 'pg';
import {
  createLayout,
  type InstancePaths,
} from '../../packages/server/src/engine/local/host/layout.ts';
import { kitOfService, startBare, stopBare, type BareKit } from './bare.ts';
import { atEnd } from './cleanup.ts';
import {
  ask,
  create,
  stepsOf,
  remove,
  selectOverTls,
  serviceOf,
  untilStatus,
  type Cloud,
  type Service,
} from './cloud.ts';
import { stopwatch, type Sample } from './measure.ts';
import { run } from './run.ts';

export type Source = {
  service: Service;
  size: Size;
  paths: InstancePaths;
  /** A superuser session in the users' database, for writes between forks. */
  admin: Client;
};

/** Settings that make loading fast, for data that need not survive a crash. */
const LOADING = [
  '-c',
  'fsync=off',
  '-c',
  'wal_level=minimal',
  '-c',
  'max_wal_senders=0',
  '-c',
  'archive_mode=off',
  '-c',
  'max_wal_size=8GB',
];

/** A size of two cores: the limit of a smaller one would be measured under load. */
export const ROOMY: Size = { cpuMillis: 2000, memoryGbs: 8 };

/**
 * A running service with data.
 *
 * @param load writes it; null: the service is new
 */
export async function makeSource(
  cloud: Cloud,
  kit: BareKit,
  load: ((client: Client) => Promise<void>) | null,
  size: Size = DEFAULT_SIZE,
): Promise<Source> {
  const asked =
    size === 'shared'
      ? {}
      : { cpu_millis: String(size.cpuMillis), memory_gbs: String(size.memoryGbs) };
  const service = await create(cloud, asked);
  const paths = createLayout(join(cloud.home, 'data')).service(service.id);
  if (load !== null) {
    await ask(cloud, 'POST', `/services/${service.id}/stop`);
    await untilStatus(cloud, service.id, 'PAUSED');
    const server = { paths, port: service.port, process: null };
    const forget = atEnd(() => stopBare(server));
    await startBare(kitOfService(kit, paths), server, LOADING);
    const client = await connectAsControl(paths.socket, service.port);
    await load(client);
    await client.end();
    await forget();
    await run('sync', ['-f', paths.data]);
    await ask(cloud, 'POST', `/services/${service.id}/start`);
    await untilStatus(cloud, service.id, 'READY');
  }
  const admin = await connectAsControl(paths.socket, service.port);
  await admin.query('create table if not exists dirty (n int, t text)');
  return { service, size, paths, admin };
}

/**
 * Waits until the archive has what a backup by hand had the source switch to: it slows the disk.
 */
export async function untilArchived({ admin }: Source): Promise<void> {
  const waiting = () =>
    admin.query("select from pg_ls_archive_statusdir() where name like '%.ready'");
  while ((await waiting()).rows.length > 0) await sleep(10);
}

export async function connectAsControl(socket: string, port: number): Promise<Client> {
  const client = new Client({ host: socket, port, user: 'howdah', database: 'tsdb' });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/** Fills tables of at most a gigabyte each with rows of 900 bytes, up to a number of megabytes. */
export async function fillTables(client: Client, megabytes: number): Promise<void> {
  for (let left = megabytes, table = 0; left > 0; left -= 1000, table++) {
    const rows = Math.round(Math.min(left, 1000) * 1092);
    // A vacuum would write all of it again, as WAL.
    await client.query(
      `create table t_${table} with (autovacuum_enabled = off) ` +
        `as select g, repeat(md5(g::text), 28) as t from generate_series(1, ${rows}) g`,
    );
  }
}

/** The same, and writes it to the disk. */
export async function fill(client: Client, megabytes: number): Promise<void> {
  await fillTables(client, megabytes);
  await client.query('checkpoint');
}

/** Creates empty tables with a key: four files each. */
export async function createTables(client: Client, count: number): Promise<void> {
  // A transaction locks each table that it creates, and there are not ten thousand locks.
  for (let first = 0; first < count; first += 500) {
    await client.query(
      `do $$ begin for n in ${first}..${Math.min(first + 500, count) - 1} loop
         execute format('create table f_%s (id int primary key, t text)', n);
       end loop; end $$`,
    );
  }
  await client.query('checkpoint');
}

/** Writes a few pages that are not on the disk yet, as in every source in use. */
export async function dirty(client: Client): Promise<void> {
  await client.query('insert into dirty select g, md5(g::text) from generate_series(1, 1000) g');
}

export type Forked = { fork: Service; sample: Sample };

/**
 * The time from sending the request for a fork to its first row over TLS. The parts contain the
 * steps of the operation.
 */
export async function forkAndSelect(cloud: Cloud, parent: Service, body: object): Promise<Forked> {
  const watch = stopwatch();
  const fork = serviceOf(
    JSON.parse(await ask(cloud, 'POST', `/services/${parent.id}/forkService`, body)),
  );
  watch.lap('answer');
  await untilStatus(cloud, fork.id, 'READY');
  watch.lap('until READY');
  await selectOverTls(cloud.ca, fork.port, fork.password, cloud.host);
  watch.lap('TLS + SELECT');
  const { value, parts } = watch.sample();
  return { fork, sample: { value, parts: { ...parts, ...(await stepsOf(cloud, fork.id)) } } };
}

/** Makes a fork of now, and deletes it. */
export async function forkOurs(cloud: Cloud, source: Source): Promise<Sample> {
  await dirty(source.admin);
  const { fork, sample } = await forkAndSelect(cloud, source.service, { fork_strategy: 'NOW' });
  await remove(cloud, fork.id);
  await trim(source.paths.root);
  return sample;
}

/**
 * Returns the blocks of deleted files to the file below a loop device, so that the next round finds
 * the same disk.
 */
export async function trim(directory: string): Promise<void> {
  // not every file system can
  await run('fstrim', [(await run('stat', ['-c', '%m', directory])).trim()]).catch(() => undefined);
}
