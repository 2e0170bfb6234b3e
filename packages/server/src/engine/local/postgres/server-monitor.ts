/** The monitor of the servers of this machine: it knows their processes. */
import { childrenOf, readOrNull } from '../../../lib/processes.ts';
import type { InstancePaths } from '../host/layout.ts';
import { createMonitor, type Monitor } from '../../postgres/sessions/monitor.ts';
import { findServer } from './server.ts';

export type ServerMonitor = Monitor<InstancePaths>;

/**
 * @param changed called with the id of a server that died, stopped answering or answers again
 * @param isFrozen whether a signal stopped the first process of a server
 */
export function createServerMonitor(
  changed: (id: string) => void,
  isFrozen: (id: string) => Promise<boolean>,
): ServerMonitor {
  return createMonitor(changed, { isFrozen, ofServer: processesOf, ofSession: backendOf });
}

/** All processes of a server, its first one before the others; none: it does not run. */
async function processesOf(paths: InstancePaths): Promise<number[]> {
  const server = await findServer(paths);
  if (server === null) return [];
  const { pid } = server.postmaster;
  return [pid, ...(await childrenOf(pid))];
}

/**
 * The process of a session: the other ones of a busy server say nothing about it.
 *
 * @param pid as the server knows it, which may be in a PID namespace
 */
async function backendOf(paths: InstancePaths, pid: number): Promise<number[]> {
  for (const candidate of await processesOf(paths))
    if ((await pidInside(candidate)) === pid) return [candidate];
  return [];
}

/** The pid of a process in its own namespace; null: the process is gone. */
async function pidInside(pid: number): Promise<number | null> {
  const status = (await readOrNull(`/proc/${pid}/status`)) ?? '';
  const inside = /^NSpid:.*\t(\d+)$/m.exec(status)?.[1];
  return inside === undefined ? null : Number(inside);
}
