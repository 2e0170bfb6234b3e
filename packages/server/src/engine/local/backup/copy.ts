/**
 * A copy of a service: its newest snapshot restored in `scratch`, started without TCP, and removed
 * after the checks.
 */
import { readdir, statfs } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { join } from 'node:path';
import { DISK_FULL_PERCENT } from '../../../domain/disk.ts';
import type { ServiceSpec } from '../../spec.ts';
import { removeTree } from '../host/clone.ts';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { bytesBelow } from '../host/space.ts';
import { type Owner, configUsersOf } from '../host/users.ts';
import { LOCAL_LISTENER } from '../network/listener.ts';
import { configFiles } from '../postgres/files.ts';
import type { Installation } from '../postgres/installations.ts';
import {
  findServer,
  launch,
  makeInstanceDirectories,
  stopServer,
  waitUntilReady,
  whyItEnded,
  writeConfig,
  PLAIN_START,
} from '../postgres/server.ts';
import type { Where } from '../../postgres/sessions/superuser.ts';
import { loadedExtensions } from '../../../domain/postgres/extension-rules.ts';
import { materialise } from './fork.ts';
import { recoveryConf } from '../../postgres/recovery-conf.ts';
import type { KeptSnapshot } from './snapshots.ts';
import { writeOwned } from './running-clone.ts';
import { reach } from './window.ts';

const WAL_FILE_BYTES = 16 * 1024 ** 2;
/** Disk space for a restored server's logs and its own WAL. */
const SLACK_BYTES = 100e6;
/** An initial snapshot is restored from a template, which takes at most this much. */
const TEMPLATE_BYTES = 80e6;
const KILL_DEADLINE_MS = 60_000;
/** No statement may delay the next verification without end. */
export const STATEMENT_LIMIT_MS = 3_600_000;
/** The port in the name of the socket: the directory holds no other socket. */
const PORT = 5432;

/**
 * Settings of a copy that differ from a service: no background work, no replication, no vacuum, no
 * jobs of extensions.
 */
const IDLE_CONF = [
  'max_worker_processes = 0',
  'max_logical_replication_workers = 0',
  'autovacuum = off',
  '',
].join('\n');

/** A snapshot to restore, and where. */
export type CopySource = {
  readonly spec: ServiceSpec;
  readonly installation: Installation;
  /** The user of the service. */
  readonly owner: Owner | null;
  /** Where the snapshot and the WAL are: the service's primary, or the copy itself. */
  readonly paths: InstancePaths;
  readonly copy: InstancePaths;
  readonly snapshot: KeptSnapshot;
};

/** When the copies that a crash left behind are removed. */
const swept = new WeakMap<Machine, Promise<void>>();

/** Removes the copies that a crash left behind; once, before the first copy is made. */
export async function sweepCopies(machine: Machine): Promise<void> {
  const sweep = swept.get(machine) ?? discardCopies(machine);
  swept.set(machine, sweep);
  try {
    await sweep;
  } catch (error) {
    swept.delete(machine);
    throw error;
  }
}

async function discardCopies(machine: Machine): Promise<void> {
  for (const entry of await readdir(machine.layout.scratch))
    await discardCopy(machine, copyPaths(machine, entry));
}

export function copyPaths({ layout }: Pick<Machine, 'layout'>, id: string): InstancePaths {
  return instancePaths(join(layout.scratch, id));
}

export async function discardCopy(machine: Machine, copy: InstancePaths): Promise<void> {
  await killCopy(machine, copy);
  await removeTree(copy.root, machine.cloneMethod);
}

export async function killCopy(machine: Machine, copy: InstancePaths): Promise<void> {
  const server = await findServer(copy);
  if (server !== null) await stopServer(machine, server, 'kill', KILL_DEADLINE_MS);
}

/** Restores a snapshot, ready to start. @returns a line for the user */
export async function restoreCopy(
  machine: Machine,
  { owner, paths, copy, snapshot }: CopySource,
): Promise<string> {
  const begunMs = Date.now();
  const { gap, latestMs, files } = await reach(paths, snapshot);
  // A snapshot has all of its own WAL: a repository has none of a server that was idle since.
  const isAlone = paths === copy && gap === snapshot.firstWal;
  if (gap !== null && !isAlone) {
    throw new Error(
      `WAL file ${gap} is missing from the archive: ` +
        `nothing after ${new Date(latestMs).toISOString()} can be reached`,
    );
  }
  await assertRoom(
    machine.layout.scratch,
    copiedBytes(machine, snapshot) + (await walBytes(paths, files)) + SLACK_BYTES,
  );
  await makeInstanceDirectories(owner, copy);
  await materialise(machine, owner, paths, snapshot, copy.data);
  await writeOwned(
    owner,
    join(copy.data, 'postgresql.auto.conf'),
    `${recoveryConf(paths, copy.data)}${IDLE_CONF}`,
  );
  await writeOwned(owner, join(copy.data, 'recovery.signal'), '');
  const taken = new Date(snapshot.takenMs).toISOString();
  return (
    `of ${taken}, by ${machine.cloneMethod} in ${Date.now() - begunMs} ms; ` +
    `${files} WAL files to replay`
  );
}

/** The disk space that WAL files to replay take at most: many may have been left early. */
async function walBytes({ archive, data }: InstancePaths, files: number): Promise<number> {
  const places = [archive, join(data, 'pg_wal')];
  const sizes = await Promise.all(places.map((place) => bytesBelow(place).catch(() => Infinity)));
  return Math.min(files * WAL_FILE_BYTES, (sizes[0] ?? 0) + (sizes[1] ?? 0));
}

/** The disk space that the data directory of a copy takes. */
function copiedBytes({ cloneMethod }: Machine, { template, storageBytes }: KeptSnapshot): number {
  if (cloneMethod !== 'copy') return 0;
  return template === null ? storageBytes : TEMPLATE_BYTES;
}

async function assertRoom(directory: string, bytes: number): Promise<void> {
  const { blocks, bavail, bfree, bsize } = await statfs(directory);
  const kept = ((blocks - bfree + bavail) * bsize * (100 - DISK_FULL_PERCENT)) / 100;
  const spare = Math.max(0, bavail * bsize - kept);
  if (spare >= bytes) return;
  const mb = (value: number) => `${Math.ceil(value / 1e6)} MB`;
  throw new Error(
    'there is no space on the disk to restore it: ' +
      `${mb(bytes)} are needed, ${mb(spare)} free without the last ${100 - DISK_FULL_PERCENT} ` +
      '% of the disk; delete services or make room',
  );
}

/** Starts a restored copy and waits until it has recovered. */
export async function startCopy(
  machine: Machine,
  { spec, installation, owner, copy }: CopySource,
  signal: AbortSignal,
): Promise<void> {
  // The smallest settings: a copy must not take the memory that the service's size promises.
  const input = {
    paths: copy,
    installation,
    extensions: loadedExtensions(spec),
    size: 'shared',
    storageGb: null,
    listen: null,
    allowedNetworks: null,
  } as const;
  await writeConfig(owner, copy, configFiles(input, configUsersOf(owner)));
  const launchedMs = Date.now();
  await launch(machine, owner, copy, installation.bin, PLAIN_START, LOCAL_LISTENER, [
    machine.layout.service(spec.id).root,
  ]);
  for (;;) {
    const state = await waitUntilReady(copy, 1000);
    signal.throwIfAborted();
    if (state === 'ready') break;
    if (state === 'ended')
      throw new Error(`it does not recover: ${await whyItEnded(copy, launchedMs)}`);
  }
  // The time of recovery is measured; the checks that follow must not slow services down.
  const server = await findServer(copy);
  if (server !== null) setPriority(server.postmaster.pid, 19);
}

/** A copy has the lowest priority: on a busy machine it may not run for a long time. */
const ANSWER_MS = 300_000;

/**
 * A superuser session in a copy. In a tenant's database it only reads catalogs and adds what the
 * checks need.
 */
export function inCopy(copy: InstancePaths, database: string): Where {
  return {
    server: copy,
    port: PORT,
    name: 'howdah verification',
    database,
    limitMs: STATEMENT_LIMIT_MS,
    answerMs: ANSWER_MS,
  };
}
