/**
 * Finds the data of a service in a directory that the metadata database may not know. All of it is
 * input: no link in it is followed, and nothing is changed. The reconciler then goes on as with any
 * service whose data is there (docs/decisions/0059-adopted-directories.md).
 */
import { lstatSync, readdirSync, realpathSync, type Stats } from 'node:fs';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { allPids } from '../../lib/processes.ts';
import { workingPlacesOf } from '../../lib/working-directories.ts';
import { NotAdoptable, type Adoptable } from '../adoptable-data.ts';
import type { Endpoint } from '../spec.ts';
import type { InstancePaths, Layout } from './host/layout.ts';
import type { Machine } from './host/machine-record.ts';
import { readMarker, type Marker } from './host/marker.ts';
import { usedBytesOf } from './host/quota.ts';
import { UnsafeEntry } from '../../lib/untrusted-directory.ts';
import { isFile, readTextIfSafe, statEntry } from '../../lib/untrusted-files.ts';
import { librariesIn, portIn } from '../postgres/server-conf.ts';
import { majorOf } from './postgres/installations.ts';
import { findServer, portIsFree } from './postgres/server.ts';

/** The directories of a service that only root writes; it works there by their paths. */
const OURS = ['config', 'snapshots', 'members', 'aside'];
/** Those that have a directory for each snapshot, or each upgrade. */
const OF_DIRECTORIES = ['snapshots', 'aside'];
const ID = /^[a-z0-9]{10}$/;
const INSTALLATION = /^[1-9]\d-[a-z]+$/;

/**
 * @param address where endpoints are, and the address that servers listen on
 * @returns null: it is not a directory of services of this region
 * @throws NotAdoptable with the reason
 */
export async function findAdoptable(
  machine: Machine,
  address: { host: string; listen: string },
  directory: string,
): Promise<Adoptable | null> {
  const { layout } = machine;
  const name = basename(resolve(directory));
  if (!ID.test(name) || !isDirectlyIn(layout.services, directory)) return null;
  const paths = layout.service(name);
  try {
    assertOurs(paths);
    const marker = await markerOrRefuse(paths);
    assertOneServer(layout, marker);
    assertData(machine, paths, marker);
    return await describe(paths, marker, address);
  } catch (error) {
    if (error instanceof UnsafeEntry) throw new NotAdoptable(error.message);
    throw error;
  }
}

/** Whether a path names an entry of a directory, also through links above it. */
function isDirectlyIn(parent: string, path: string): boolean {
  if (!isAbsolute(path)) return false;
  try {
    return realpathSync(dirname(resolve(path))) === realpathSync(parent);
  } catch {
    return false; // there is no such directory
  }
}

/** Only our own user writes there: what is checked now stays so. */
const isPrivate = ({ uid, mode }: Stats): boolean =>
  uid === process.geteuid?.() && (mode & 0o022) === 0;

function assertOurs({ root }: InstancePaths): void {
  assertPrivate(root, statEntry(root));
  for (const entry of readdirSync(root, { withFileTypes: true })) {
    if (entry.isSymbolicLink()) throw linked(entry.name);
    const path = join(root, entry.name);
    if (OURS.includes(entry.name)) assertPrivate(path, lstatSync(path));
    if (OF_DIRECTORIES.includes(entry.name)) assertDirectories(path);
  }
}

/** Root gives the data in each of them to the user of the service. */
function assertDirectories(parent: string): void {
  for (const name of readdirSync(parent)) {
    const path = join(parent, name);
    assertPrivate(path, lstatSync(path));
    for (const entry of readdirSync(path, { withFileTypes: true }))
      if (entry.isSymbolicLink()) throw linked(`${basename(parent)}/${name}/${entry.name}`);
  }
}

const linked = (name: string): NotAdoptable =>
  new NotAdoptable(
    `${name} is a symbolic link, which is not followed: replace it by what it points to`,
  );

function assertPrivate(path: string, found: Stats | null): void {
  const name = basename(path);
  if (found === null) throw new NotAdoptable('there is no such directory');
  if (!found.isDirectory()) throw new NotAdoptable(`${name} is not a directory`);
  if (!isPrivate(found))
    throw new NotAdoptable(
      `other users can write into ${name}: it belongs to user ${found.uid}, with the mode ` +
        `${(found.mode & 0o777).toString(8)}; chown ${process.geteuid?.()} and chmod go-w`,
    );
}

/** @throws NotAdoptable when the marker is none, or of a service without data of users */
async function markerOrRefuse(paths: InstancePaths): Promise<Marker> {
  const name = basename(paths.marker);
  // A FIFO or a large file in its place is not read.
  const marker = readTextIfSafe(paths.marker) === null ? null : await readMarker(paths);
  if (marker === null)
    throw new NotAdoptable(
      `it has no marker ${name} that can be read: only a directory that Howdah has made is adopted`,
    );
  const { id, installation, provisioned, exchange, upgrade } = marker;
  if (!ID.test(id) || !INSTALLATION.test(installation) || !(upgrade === null || ID.test(upgrade)))
    throw new NotAdoptable(`its marker ${name} names no service, or no PostgreSQL`);
  if (id !== basename(paths.root))
    throw new NotAdoptable(`its marker ${name} names the service ${id}: rename the directory so`);
  if (!provisioned)
    throw new NotAdoptable('it was never provisioned, so it has no data: remove it');
  if (exchange !== null)
    throw new NotAdoptable(
      'its data is being exchanged with that of an upgrade: only the backup of the metadata ' +
        'database that knows the upgrade brings it back (howdah restore-control)',
    );
  return marker;
}

/** @throws NotAdoptable for clusters and sets, whose servers the marker does not name */
function assertOneServer(layout: Layout, { id, userOf }: Marker): void {
  const { root, data } = layout.service(id);
  const others = join(root, 'members');
  const numbers = statEntry(others) === null ? [] : readdirSync(others);
  const isStandby = ['standby.signal', 'recovery.signal'].some((name) =>
    statEntry(data) === null ? false : isFile(join(data, name)),
  );
  if (userOf !== null || numbers.length > 0 || isStandby || layout.primaryOf(id) !== 0)
    throw new NotAdoptable(
      'it has several instances, or is one of several: it was a service with replicas or a read ' +
        'replica set, which only a backup of the metadata database brings back (howdah ' +
        'restore-control)',
    );
}

/** @throws NotAdoptable when it is not the data of a server that the marker names */
function assertData({ isolation }: Machine, { data }: InstancePaths, marker: Marker): void {
  const found = statEntry(data);
  if (found === null || !found.isDirectory() || !isFile(join(data, 'global', 'pg_control')))
    throw new NotAdoptable('it has no data of a PostgreSQL server (data/global/pg_control)');
  const version = readTextIfSafe(join(data, 'PG_VERSION'))?.trim();
  if (version !== String(majorOf(marker)))
    throw new NotAdoptable(
      `its marker names PostgreSQL ${majorOf(marker)}, and data/PG_VERSION ` +
        (version === undefined ? 'is missing' : 'another version'),
    );
  if (isolation.isolated && marker.uid !== null && found.uid !== marker.uid)
    throw new NotAdoptable(
      `data belongs to user ${found.uid}, and its marker names user ${marker.uid}: it was copied ` +
        'without its owners, copy it with them (cp -a)',
    );
}

async function describe(
  paths: InstancePaths,
  marker: Marker,
  address: { host: string; listen: string },
): Promise<Adoptable> {
  const { id } = marker;
  const server = await findServer(paths);
  if (server === null) await assertUnused(paths);
  const conf = readTextIfSafe(join(paths.config, 'postgresql.conf')) ?? '';
  return {
    id,
    major: majorOf(marker),
    libraries: librariesIn(conf),
    upgraded: upgradedOf(paths, marker),
    endpoint: await endpointOf(portIn(conf), address, server !== null),
    pid: server?.postmaster.pid ?? null,
    dataBytes: await usedBytesOf(paths),
  };
}

/**
 * Refuses data in which a process works that is not our server: that of another installation, whose
 * directory this was, or one that was started by hand. It is found by the directory itself, which
 * may have another path there.
 */
async function assertUnused({ data }: InstancePaths): Promise<void> {
  const { dev, ino } = lstatSync(data);
  for (const [pid, at] of await workingPlacesOf(await allPids())) {
    if (at.dev === dev && at.ino === ino)
      throw new NotAdoptable(
        `process ${pid} works in its data, and is no server of this installation: stop the ` +
          'installation that has started it (howdah down --databases there), or the process',
      );
  }
}

/** The upgrade has moved the data from before it aside, which stays for a while. */
function upgradedOf({ root }: InstancePaths, { upgrade: id }: Marker): Adoptable['upgraded'] {
  if (id === null) return null;
  const former = join(root, 'aside', id);
  const version = readTextIfSafe(join(former, '0', 'PG_VERSION'))?.trim() ?? '';
  const at = statEntry(former)?.mtime.toISOString() ?? null;
  return at !== null && /^[1-9]\d$/.test(version)
    ? { id, from: Number(version), at }
    : { id, from: null, at: null };
}

async function endpointOf(
  port: number | null,
  { host, listen }: { host: string; listen: string },
  runs: boolean,
): Promise<Endpoint | null> {
  if (port === null || !(runs || (await portIsFree(listen, port)))) return null;
  return { host, port };
}
