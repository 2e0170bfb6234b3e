/** Programs of an installation whose directory is gone: they serve nobody, and hold its ports. */
import { readlink } from 'node:fs/promises';
import { basename } from 'node:path';
import { allPids, argumentsOf, exists, signal } from '../../../lib/processes.ts';
import { removeNetworks } from '../network/networks.ts';
import { allowEgress, tableOf } from './egress.ts';
import { removeLimitsRoot } from './limits.ts';
import type { Site } from './machine-record.ts';

/**
 * How a program ends at once. PostgreSQL would end by itself within a minute, and takes its
 * children along; a pooler would wait for its clients.
 */
const ENDS: ReadonlyMap<string, NodeJS.Signals> = new Map([
  ['postgres', 'SIGQUIT'],
  ['haproxy', 'SIGKILL'],
  ['pgbouncer', 'SIGKILL'],
]);

/**
 * Ends the servers and proxies below a directory that was removed. They are known by a working
 * directory that is removed as well: those of an installation that has the path by now have one.
 *
 * @param root the directory of the data
 * @returns the pids
 */
export async function endOrphans(root: string): Promise<number[]> {
  const ended: number[] = [];
  for (const pid of await allPids()) {
    const name = await orphanProgram(pid, root);
    if (name === undefined) continue;
    signal(pid, name);
    ended.push(pid);
  }
  return ended;
}

/**
 * Removes what the kernel has of an installation whose directory was removed: its networks, packet
 * filters and control groups. Their names come from the path, and belong to the installation that
 * has it by now.
 */
export async function removeKernelParts({ layout, limits, networkPrefix }: Site): Promise<void> {
  if (await exists(layout.root)) return;
  await removeNetworks(networkPrefix);
  await allowEgress(tableOf(networkPrefix));
  await removeLimitsRoot(limits);
}

/** @returns the signal that ends it; undefined: it is none of them */
async function orphanProgram(pid: number, root: string): Promise<NodeJS.Signals | undefined> {
  const [program = '', ...rest] = await argumentsOf(pid);
  const how = ENDS.get(basename(program));
  if (how === undefined || !rest.some((argument) => argument.startsWith(`${root}/`)))
    return undefined;
  // Without the right to look, as in a container with few capabilities, it is left alone.
  const directory = await readlink(`/proc/${pid}/cwd`).catch(() => '');
  return directory.endsWith(' (deleted)') ? how : undefined;
}
