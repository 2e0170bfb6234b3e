import { readdir } from 'node:fs/promises';
import { removeLimitsRoot } from './limits.ts';
import { prepareMachine } from './machine.ts';
import { findServer, stopServer } from './server.ts';
import { stopStore } from './store-instance.ts';

/**
 * Stops every server of an installation whose control plane does not run: `howdah down --databases`. They start again with the next `up`.
 *
 * @returns ids of the services that were stopped
 */
export async function stopDatabases(home: string, progress: (id: string) => void): Promise<string[]> {
  const machine = await prepareMachine(home);
  const stopped: string[] = [];
  await stopStore(machine);
  for (const id of await readdir(machine.layout.services)) {
    const server = await findServer(machine.layout.service(id));
    if (server === null) continue;
    const ended = (await stopServer(machine, server, 'fast', 60_000)) || (await stopServer(machine, server, 'kill', 5000));
    if (!ended) throw new Error(`service ${id}: its server (pid ${server.postmaster.pid}) does not end`);
    stopped.push(id);
    progress(id);
  }
  await removeLimitsRoot(machine.limits);
  return stopped;
}
