/**
 * Forks by hand: of the same running service, onto the same file system, with only the steps that
 * cannot be omitted (recipe R2).
 */
import { chown, copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { writeRateLimit } from '../../packages/server/src/engine/local/host/groups.ts';
import { budgetOf, restingRate } from '../../packages/server/src/engine/local/host/share-out.ts';
import { nextWalFile } from '../../packages/server/src/engine/postgres/data/wal-files.ts';
import { exists } from '../../packages/server/src/lib/processes.ts';
import {
  connectBare,
  kitOfService,
  makeDirectories,
  removeBare,
  setPassword,
  startBare,
  writeFiles,
  type BareKit,
} from './bare.ts';
import { atEnd } from './cleanup.ts';
import { selectOverTls } from './cloud.ts';
import { stopwatch, type Sample } from './measure.ts';
import { freePort, run } from './run.ts';
import { connectAsControl, dirty, trim, untilArchived, type Source } from './source.ts';

/**
 * How the data directory of a running server is copied. snapshot: CHECKPOINT, then a btrfs
 * snapshot, which recovers as after a crash; reflink and bytes: `cp -a` between pg_backup_start and
 * pg_backup_stop.
 */
export type CopyMethod = 'snapshot' | 'reflink' | 'bytes';

export const CHEAPEST: Record<BareKit['machine']['cloneMethod'], CopyMethod> = {
  subvolume: 'snapshot',
  reflink: 'reflink',
  copy: 'bytes',
};

export const METHOD_IN_WORDS: Record<CopyMethod, string> = {
  snapshot: 'by hand: CHECKPOINT, btrfs snapshot, start',
  reflink: 'by hand: pg_backup_start, cp -a --reflink=always, pg_backup_stop, start',
  bytes: 'pg_backup_start, cp -a --reflink=never, pg_backup_stop, start',
};

/**
 * Forks a running service by hand, with the settings of one of ours, up to the first row over TLS,
 * and removes the fork.
 */
export async function forkByHand(
  ofOthers: BareKit,
  source: Source,
  method: CopyMethod,
): Promise<Sample> {
  const kit = kitOfService(ofOthers, source.paths);
  await dirty(source.admin);
  // By hand, nothing limits how fast the source writes.
  const { limits, shares } = kit.machine;
  await writeRateLimit(limits, source.service.id, null);
  const watch = stopwatch();
  const server = await makeDirectories(kit);
  const forget = atEnd(() => removeBare(kit, server));
  await copyData(kit, source, server.paths.data, method);
  watch.lap('copy');
  await writeFiles(kit, server, 'ours');
  await startBare(kit, server);
  watch.lap('start');
  const admin = await connectBare(server);
  const password = await setPassword(admin);
  watch.lap('password');
  await selectOverTls(kit.ca, server.port, password);
  watch.lap('TLS + SELECT');
  const sample = watch.sample();
  admin.connection.stream.destroy();
  await forget();
  await untilArchived(source);
  const diskRate = shares.diskRate();
  if (diskRate !== null)
    await writeRateLimit(limits, source.service.id, restingRate(budgetOf(diskRate)));
  await trim(source.paths.root);
  return sample;
}

/** Copies the data directory of a running service so that a server can be started on it. */
export async function copyData(
  kit: BareKit,
  source: Source,
  target: string,
  method: CopyMethod,
): Promise<void> {
  const client = await connectAsControl(source.paths.socket, source.service.port);
  if (method === 'snapshot') {
    await client.query('checkpoint');
    await run('btrfs', ['subvolume', 'snapshot', source.paths.data, target]);
  } else {
    await client.query("select pg_backup_start('bench', fast => true)");
    const entries = (await readdir(source.paths.data))
      .filter((name) => name !== 'pg_wal')
      .map((name) => join(source.paths.data, name));
    await mkdir(join(target, 'pg_wal'), { recursive: true, mode: 0o700 });
    await run(
      'cp',
      ['-a', `--reflink=${method === 'reflink' ? 'always' : 'never'}`, '-t', target, ...entries],
      { deadlineMs: 600_000 },
    );
    const { rows } = await client.query<{ label: string; last: string }>(
      'select labelfile as label, pg_walfile_name(lsn) as last ' +
        'from pg_backup_stop(wait_for_archive => false)',
    );
    const [{ label, last } = { label: '', last: '' }] = rows;
    const first = /\(file ([0-9A-F]{24})\)/.exec(label)?.[1];
    if (first === undefined) throw new Error('pg_backup_stop answered without a label');
    const made = [target, join(target, 'pg_wal'), join(target, 'backup_label')];
    for (let wal = first; wal <= last; wal = nextWalFile(wal)) {
      const to = join(target, 'pg_wal', wal);
      // After a long copy, the first WAL files are only in the archive.
      await copyFile(join(source.paths.data, 'pg_wal', wal), to).catch(() =>
        copyFile(join(source.paths.archive, wal), to),
      );
      made.push(join(target, 'pg_wal', wal));
    }
    await writeFile(join(target, 'backup_label'), label, { mode: 0o600 });
    const { owner } = kit.machine;
    if (owner !== null) for (const path of made) await chown(path, owner.uid, owner.gid);
  }
  client.connection.stream.destroy();
  for (const name of ['postmaster.pid', 'postmaster.opts'])
    await rm(join(target, name), { force: true });
}

// ── the peer ─────────────────────────────────────────────────────────────────────────────────────

/**
 * A running server of Debian's PostgreSQL, from which Debian's pg_basebackup can copy:
 * pg_basebackup of an older major cannot copy from npm's server.
 */
export type Peer = { major: string; bin: string; directory: string; socket: string; port: number };

/**
 * The newest major of Debian's for which all programs of the peer are
 * installed; null: there is none.
 *
 * @param more further files below its directory
 */
export async function debianMajor(...more: string[]): Promise<string | null> {
  const needed = ['bin/initdb', 'bin/postgres', 'bin/pg_ctl', 'bin/pg_basebackup', ...more];
  const majors = await readdir('/usr/lib/postgresql').catch(() => []);
  for (const major of majors.toSorted((a, b) => Number(b) - Number(a))) {
    const found = await Promise.all(
      needed.map((file) => exists(join('/usr/lib/postgresql', major, file))),
    );
    if (found.every(Boolean)) return major;
  }
  return null;
}

/** Makes the peer's source with the same data as a service's. */
export async function makePeer(
  kit: BareKit,
  major: string,
  load: (client: Client) => Promise<void>,
): Promise<Peer> {
  const directory = await mkdtemp(join(kit.directory, 'peer-'));
  const peer: Peer = {
    major,
    bin: `/usr/lib/postgresql/${major}/bin`,
    directory,
    socket: directory,
    port: await freePort(),
  };
  const user = asOwner(kit);
  if (kit.machine.owner !== null)
    await chown(directory, kit.machine.owner.uid, kit.machine.owner.gid);
  const data = join(directory, 'source');
  await run(
    join(peer.bin, 'initdb'),
    ['-D', data, '-U', 'howdah', '--auth=trust', '--data-checksums', '--no-sync'],
    user,
  );
  const loading = '-c fsync=off -c wal_level=minimal -c max_wal_senders=0 -c max_wal_size=8GB';
  atEnd(async () => {
    await run(join(peer.bin, 'pg_ctl'), ['-D', data, '-m', 'immediate', 'stop'], user).catch(
      () => undefined,
    );
    await rm(directory, { recursive: true, force: true });
  });
  await startServer(kit, peer, data, peer.port, loading);
  const client = await connectToPeer(peer, peer.port, 'postgres');
  await client.query('create database tsdb');
  await client.end();
  const loader = await connectToPeer(peer, peer.port, 'tsdb');
  await load(loader);
  await loader.query('create table dirty (n int, t text)');
  await loader.end();
  await run(join(peer.bin, 'pg_ctl'), ['-D', data, '-m', 'fast', '-w', 'stop'], {
    ...user,
    deadlineMs: 600_000,
  });
  await run('sync', ['-f', data]);
  await startServer(kit, peer, data, peer.port, '');
  return peer;
}

/**
 * Runs pg_basebackup and a start, up to the first row over the Unix socket, without TLS, and
 * removes the copy.
 */
export async function forkOfPeer(kit: BareKit, peer: Peer): Promise<Sample> {
  const source = await connectToPeer(peer, peer.port, 'tsdb');
  await dirty(source);
  await source.end();
  const target = join(peer.directory, 'copy');
  const port = await freePort();
  const forget = atEnd(async () => {
    await run(
      join(peer.bin, 'pg_ctl'),
      ['-D', target, '-m', 'immediate', 'stop'],
      asOwner(kit),
    ).catch(() => undefined);
    await rm(target, { recursive: true, force: true });
  });
  const watch = stopwatch();
  await run(
    join(peer.bin, 'pg_basebackup'),
    [
      '-h',
      peer.socket,
      '-p',
      String(peer.port),
      '-U',
      'howdah',
      '-D',
      target,
      '-X',
      'stream',
      '-c',
      'fast',
    ],
    { ...asOwner(kit), deadlineMs: 600_000 },
  );
  watch.lap('pg_basebackup');
  await startServer(kit, peer, target, port, '');
  watch.lap('start');
  const client = await connectToPeer(peer, port, 'tsdb');
  await client.query('select 1');
  watch.lap('SELECT');
  const sample = watch.sample();
  await client.end();
  await forget();
  await trim(peer.directory);
  return sample;
}

async function startServer(
  kit: BareKit,
  peer: Peer,
  data: string,
  port: number,
  more: string,
): Promise<void> {
  const options = `-p ${port} -k ${peer.socket} -c listen_addresses='' ${more}`;
  await run(
    join(peer.bin, 'pg_ctl'),
    ['-D', data, '-l', join(peer.directory, 'log'), '-w', '-o', options, 'start'],
    {
      ...asOwner(kit),
      deadlineMs: 600_000,
    },
  );
}

async function connectToPeer(peer: Peer, port: number, database: string): Promise<Client> {
  const client = new Client({ host: peer.socket, port, user: 'howdah', database });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

function asOwner({ machine: { owner } }: BareKit): { uid?: number; gid?: number } {
  return owner === null ? {} : { uid: owner.uid, gid: owner.gid };
}
