/** The processes of a server that an answer depends on. */
import { childrenOf, readOrNull } from '../../../lib/processes.ts';
import type { InstancePaths } from '../host/layout.ts';
import { findServer } from './server.ts';

/** All processes of a server, its first one before the others; none: it does not run. */
export async function processesOf(paths: InstancePaths): Promise<number[]> {
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
export async function backendOf(paths: InstancePaths, pid: number): Promise<number[]> {
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
