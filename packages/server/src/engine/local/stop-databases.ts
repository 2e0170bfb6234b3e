import { instancePaths } from './layout.ts';
import { removeLimitsRoot } from './limits.ts';
import { prepareMachine } from './machine.ts';
import { findServer, runningServers, stopServer } from './server.ts';
import { dirname } from 'node:path';

/**
 * Stops every server of an installation whose control plane does not run: `howdah down --databases`. They start again with the next `up`.
 *
 * @param progress called with the id of each service that was stopped
 * @returns how many were
 */
export async function stopDatabases(home: string, progress: (id: string) => void): Promise<number> {
  const machine = await prepareMachine(home);
  const { root, services } = machine.layout;
  let stopped = 0;
  // By what runs, not by what there are directories of: the records and a template that was being made go as well.
  for (const data of (await runningServers()).filter((directory) => directory.startsWith(`${root}/`))) {
    const instance = dirname(data);
    const server = await findServer(instancePaths(instance));
    if (server === null) continue;
    const ended = (await stopServer(machine, server, 'fast', 60_000)) || (await stopServer(machine, server, 'kill', 5000));
    if (!ended) throw new Error(`the server of ${instance} (pid ${server.postmaster.pid}) does not end`);
    if (dirname(instance) !== services) continue;
    stopped += 1;
    progress(instance.slice(services.length + 1));
  }
  await removeLimitsRoot(machine.limits);
  return stopped;
}
