import { readdir } from 'node:fs/promises';
import { noneOf } from '../../../lib/processes.ts';
import { endBackup } from '../copy/base-backup.ts';
import { runningDaemons, stopDaemon } from '../host/daemon.ts';
import { detachImage, imagePaths } from '../host/image.ts';
import { instancePaths } from '../host/layout.ts';
import { groupIds, liftWriteLimit, removeLimitsRoot } from '../host/limits.ts';
import { dataDirectory, probeNamespaces } from '../host/machine.ts';
import type { Site } from '../host/machine-record.ts';
import { removeNetworks } from '../network/networks.ts';
import { allowEgress, tableOf } from '../host/egress.ts';
import { findServer, runningServers, stopServer } from '../postgres/server.ts';
import { findSites } from './sites.ts';
import { dirname } from 'node:path';

/**
 * `howdah down --databases`: stops all servers, poolers and gateways of an installation whose
 * control plane does not run, in all its regions, removes the networks of its VPCs and its packet
 * filters, and unmounts its data volumes. The next `up` starts them again.
 *
 * @param progress called with the id of each service that was stopped
 * @returns how many were
 */
export async function stopDatabases(home: string, progress: (id: string) => void): Promise<number> {
  let stopped = 0;
  // The metadata database, which is in the first region, goes last.
  for (const { site, directory } of (await findSites(home)).toReversed()) {
    if (site !== null) stopped += await stopServers(site, progress);
    await detachImage(imagePaths(await dataDirectory(directory)));
  }
  return stopped;
}

async function stopServers(
  { layout, limits, networkPrefix }: Site,
  progress: (id: string) => void,
): Promise<number> {
  const { root, services } = layout;
  const namespaces = await probeNamespaces();
  // First, so that clients get the error from them and not from the servers behind them.
  for (const daemon of (await runningDaemons()).filter((found) =>
    found.root.startsWith(`${root}/`),
  )) {
    if (!(await stopDaemon(daemon.process, 'SIGTERM', 1000)))
      throw new Error(`${daemon.root}: process ${daemon.process.pid} does not end`);
  }
  for (const id of await groupIds(limits)) await liftWriteLimit(limits, id);
  // Copies begin again.
  for (const id of (await readdir(layout.copies).catch(noneOf('ENOENT'))) ?? [])
    await endBackup(layout.copy(id));
  let stopped = 0;
  // By what runs, not by what there are directories of: the metadata database and a template that
  // was being made go as well.
  for (const data of (await runningServers()).filter((directory) =>
    directory.startsWith(`${root}/`),
  )) {
    const instance = dirname(data);
    const server = await findServer(instancePaths(instance));
    if (server === null) continue;
    const ended =
      (await stopServer({ namespaces }, server, 'fast', 60_000)) ||
      (await stopServer({ namespaces }, server, 'kill', 60_000));
    if (!ended)
      throw new Error(`the server of ${instance} (pid ${server.postmaster.pid}) does not end`);
    // Other members of a service are below it.
    if (dirname(instance) !== services) continue;
    stopped += 1;
    progress(instance.slice(services.length + 1));
  }
  await removeLimitsRoot(limits);
  await removeNetworks(networkPrefix);
  await allowEgress(tableOf(networkPrefix));
  return stopped;
}
