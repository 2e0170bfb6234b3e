/**
 * The parts of an installation on the machine: directories, processes, ports, limits, leftovers.
 */
import { readdir } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { lstatSync, readdirSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { runningDaemons } from '../host/daemon.ts';
import { portIn } from '../../postgres/server-conf.ts';
import { memberKey, instancePaths, type InstancePaths, type Layout } from '../host/layout.ts';
import type { Site } from '../host/machine-record.ts';
import { imagePaths, unfinishedMove } from '../host/image.ts';
import { groupIds } from '../host/limits.ts';
import { findNetworks, type NetworkSeen } from '../network/networks.ts';
import {
  noneOf,
  readOrNull,
  allPids,
  findProcess,
  isErrno,
  uidOf,
} from '../../../lib/processes.ts';
import { isFollower } from '../../postgres/replication/replication-conf.ts';
import { runningServers } from '../postgres/server.ts';
import { isFile, listEntries } from '../../../lib/untrusted-files.ts';
import { markerOf } from '../host/marker.ts';

export type Inventory = {
  /** Ids of services that have a directory. */
  directories: string[];
  /** Ids of services of other regions that have a copy here. */
  copies: string[];
  /** The key of each server that runs, once for each: see memberKey. */
  processes: string[];
  /** Keys of those among them that accept writes. */
  writers: string[];
  /** The replication slots of running servers, for members and nodes that follow them. */
  slots: { key: string; name: string }[];
  /** Running programs beside the servers: the service, and the name of the directory. */
  daemons: { id: string; name: string }[];
  /** All ports that something listens on, in the machine's own network. */
  ports: number[];
  /** Ports of our servers, by their configuration. */
  processPorts: number[];
  /** The networks of VPCs. */
  networks: NetworkSeen[];
  /** Keys of servers that have a cgroup. */
  groups: string[];
  /** Paths of what was being made or deleted and is not being worked on. */
  leftovers: string[];
  /** Files, sockets and processes of services that are not as private as they must be. */
  misowned: Misowned[];
};

export async function takeInventory({ layout, limits, networkPrefix }: Site): Promise<Inventory> {
  const { services, trash, templates, scratch, copies: copiesPlace } = layout;
  const [
    entries,
    deleted,
    scratched,
    copies,
    made,
    half,
    servers,
    daemons,
    groups,
    ports,
    networks,
    misowned,
  ] = await Promise.all([
    readdir(services),
    readdir(trash),
    readdir(scratch),
    // An earlier release has made no such directory.
    readdir(copiesPlace).catch(noneOf('ENOENT')),
    readdir(templates),
    unfinishedMove(imagePaths(layout.root)),
    runningServers(),
    runningDaemons(),
    groupIds(limits),
    listeningPorts(),
    findNetworks(networkPrefix),
    findMisowned(layout),
  ]);
  const ours = servers.filter((directory) => directory.startsWith(`${services}/`));
  const keys = ours.map((directory) => keyOf(directory.slice(services.length + 1)));
  const beside = daemons
    .filter(({ root }) => root.startsWith(`${services}/`))
    .map(({ root }) => ({ id: basename(dirname(root)), name: basename(root) }));
  const configured = await Promise.all(
    [...new Set(ours)].map(async (data) =>
      portIn((await readOrNull(join(data, '..', 'config', 'postgresql.conf'))) ?? ''),
    ),
  );
  const slots = await Promise.all(
    [...new Set(ours)].map(async (data) => {
      // A directory that has just been removed has no names.
      const names = await listEntries(join(data, 'pg_replslot')).catch(() => []);
      return names
        .filter(isFollower)
        .map((name) => ({ key: keyOf(data.slice(services.length + 1)), name }));
    }),
  );
  return {
    directories: entries.filter((entry) => !entry.endsWith('.new')),
    copies: copies ?? [],
    processes: keys,
    writers: keys.filter((_, index) => !isFile(join(ours[index] ?? '', 'standby.signal'))),
    slots: slots.flat(),
    daemons: beside,
    ports,
    processPorts: configured.filter((port) => port !== null),
    networks,
    groups,
    misowned,
    leftovers: [
      ...entries.filter((entry) => entry.endsWith('.new')).map((entry) => join(services, entry)),
      ...deleted.map((entry) => join(trash, entry)),
      ...scratched.map((entry) => join(scratch, entry)),
      ...half,
      ...made.filter((entry) => entry.startsWith('.probe-')).map((entry) => join(templates, entry)),
    ],
  };
}

/** From "ID/data", or "ID/members/N/data". */
function keyOf(path: string): string {
  const [id = '', , n = '0'] = path.split('/');
  return memberKey(id, Number(n));
}

/** The state LISTEN in /proc/net/tcp. */
const LISTEN = '0A';

async function listeningPorts(): Promise<number[]> {
  const tables = await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map(readOrNull));
  const lines = tables.flatMap((table) => (table ?? '').split('\n').slice(1));
  return lines.flatMap((line) => {
    const [, local, , state] = line.trim().split(/\s+/);
    return state === LISTEN && local !== undefined
      ? [Number.parseInt(local.split(':')[1] ?? '0', 16)]
      : [];
  });
}

// The owners of files, sockets and processes, for the integrity check: those of a service must
// belong to its user, and be closed to others.

/** The wrong owners and modes of a service with a user of its own. */
type Misowned = { id: string; what: string };

async function findMisowned(layout: Layout): Promise<Misowned[]> {
  if (process.getuid?.() !== 0) return [];
  const services = (await readdir(layout.services)).flatMap((id) => {
    const uid = markerOf(layout.service(id))?.uid ?? null;
    return uid === null ? [] : [{ id, uid, paths: layout.service(id) }];
  });
  const files = await Promise.all(
    services.map(async ({ id, uid, paths }) =>
      (await misownedFiles(paths, uid)).map((what) => ({ id, what })),
    ),
  );
  return [...files.flat(), ...(await strayProcesses(layout, services))];
}

async function misownedFiles({ root }: InstancePaths, uid: number): Promise<string[]> {
  const found: string[] = [];
  // HAProxy's, which is of a user of its own.
  const gateway = join(root, 'haproxy');
  const gatewayUid = lstatSync(gateway, { throwIfNoEntry: false })?.uid ?? 0;
  const visit = async (path: string): Promise<void> => {
    const info = lstatSync(path, { throwIfNoEntry: false });
    if (info === undefined) return; // it has just been removed
    const owners =
      path === gateway || path.startsWith(`${gateway}/`) ? [0, uid, gatewayUid] : [0, uid];
    const shown = relative(root, path) || '.';
    if (!owners.includes(info.uid))
      found.push(`${shown} belongs to user ${info.uid} instead of ${uid}`);
    else if (!info.isSymbolicLink() && isOpen(info, uid))
      found.push(`${shown} is open to others (mode ${(info.mode & 0o7777).toString(8)})`);
    if (!info.isDirectory()) return;
    await nextTurn();
    for (const entry of entriesOf(path)) await visit(join(path, entry));
  };
  await visit(root);
  return found;
}

/** The directory of the service protects files of root: no other user may write them. */
function isOpen(
  { mode, uid: owner, gid }: { mode: number; uid: number; gid: number },
  uid: number,
): boolean {
  const ofOthers = gid === uid || gid === 0 ? 0o007 : 0o077;
  return (mode & ofOthers & (owner === 0 ? 0o022 : 0o777)) !== 0;
}

function entriesOf(path: string): string[] {
  try {
    return readdirSync(path);
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  }
}

/** Processes of a service's user that nothing of it has started. */
async function strayProcesses(
  layout: Layout,
  services: readonly { id: string; uid: number }[],
): Promise<Misowned[]> {
  const begun = new Set((await Promise.all(services.map(({ id }) => pidsOf(layout, id)))).flat());
  const isOurs = async (pid: number): Promise<boolean> => {
    if (begun.has(pid)) return true;
    const parent = (await findProcess(pid))?.parentPid ?? 0;
    return parent > 1 && isOurs(parent);
  };
  const found: Misowned[] = [];
  for (const pid of await allPids()) {
    const uid = uidOf(pid);
    const service = services.find((one) => one.uid === uid);
    if (service === undefined || (await isOurs(pid)) || (await findProcess(pid)) === null) continue;
    found.push({
      id: service.id,
      what: `process ${pid} runs as its user ${uid} and is none of its own`,
    });
  }
  return found;
}

/** The processes that were launched for a service. */
async function pidsOf(layout: Layout, id: string): Promise<number[]> {
  const numbers = await readdir(join(layout.service(id).root, 'members')).catch(() => []);
  const files = [
    layout.service(id).pidFile,
    layout.service(id).pooler.pidFile,
    layout.gateway(id).pidFile,
    instancePaths(join(layout.scratch, id)).pidFile,
    ...numbers.map((n) => layout.member(id, Number(n)).pidFile),
  ];
  return (await Promise.all(files.map(readOrNull)))
    .map((text) => Number(text ?? '0'))
    .filter((pid) => pid !== 0);
}
