/** What of an installation is on the machine: directories, processes, ports, limits, leftovers. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Machine } from './machine.ts';
import { groupIds } from './limits.ts';
import { readOrNull } from './processes.ts';
import { runningServers } from './server.ts';

export type Inventory = {
  /** Ids of services that have a directory. */
  directories: string[];
  /** The id of each server that runs, once for each. */
  processes: string[];
  /** All ports that something listens on. */
  ports: number[];
  /** Ports of our servers, by their configuration. */
  processPorts: number[];
  /** Ids of services that have a cgroup. */
  groups: string[];
  /** Paths of what was being made or deleted and is not being worked on. */
  leftovers: string[];
};

export async function takeInventory(machine: Machine): Promise<Inventory> {
  const { services, trash, templates } = machine.layout;
  const [entries, deleted, made, servers, groups, ports] = await Promise.all([
    readdir(services),
    readdir(trash),
    readdir(templates),
    runningServers(),
    groupIds(machine.limits),
    listeningPorts(),
  ]);
  const ours = servers.filter((directory) => directory.startsWith(`${services}/`));
  const ids = ours.map((directory) => directory.slice(services.length + 1).split('/')[0] ?? '');
  const configured = await Promise.all(
    [...new Set(ids)].map(async (id) => portOf((await readOrNull(join(services, id, 'config', 'postgresql.conf'))) ?? '')),
  );
  return {
    directories: entries.filter((entry) => !entry.endsWith('.new')),
    processes: ids,
    ports,
    processPorts: configured.filter((port) => port !== null),
    groups,
    leftovers: [
      ...entries.filter((entry) => entry.endsWith('.new')).map((entry) => join(services, entry)),
      ...deleted.map((entry) => join(trash, entry)),
      ...made.filter((entry) => entry.startsWith('.probe-')).map((entry) => join(templates, entry)),
    ],
  };
}

function portOf(conf: string): number | null {
  const port = /^port = (\d+)$/m.exec(conf)?.[1];
  return port === undefined ? null : Number(port);
}

/** The state LISTEN in /proc/net/tcp. */
const LISTEN = '0A';

async function listeningPorts(): Promise<number[]> {
  const tables = await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map(readOrNull));
  const lines = tables.flatMap((table) => (table ?? '').split('\n').slice(1));
  return lines.flatMap((line) => {
    const [, local, , state] = line.trim().split(/\s+/);
    return state === LISTEN && local !== undefined ? [Number.parseInt(local.split(':')[1] ?? '0', 16)] : [];
  });
}
