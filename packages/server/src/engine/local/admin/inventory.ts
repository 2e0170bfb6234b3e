/**
 * The parts of an installation on the machine: directories, processes, ports, limits, leftovers.
 */
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { runningDaemons } from '../host/daemon.ts';
import { portIn } from '../postgres/files.ts';
import { memberKey } from '../host/layout.ts';
import type { Site } from '../host/machine-record.ts';
import { imagePaths, unfinishedMove } from '../host/image.ts';
import { groupIds } from '../host/limits.ts';
import { findNetworks, type NetworkSeen } from '../network/networks.ts';
import { noneOf, readOrNull } from '../../../lib/processes.ts';
import { findMisowned, type Misowned } from './owners.ts';
import { isFollower } from '../postgres/replication.ts';
import { runningServers } from '../postgres/server.ts';
import { isFile, listEntries } from '../host/service-files.ts';

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
      const names = await listEntries(join(data, 'pg_replslot')).catch(() => []); // it has just been removed
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
