/** The removal of a service with replicas. */
import { findDaemon } from '../../host/daemon.ts';
import { fence, findServer, stopServer } from '../../postgres/server.ts';
import type { Topology } from '../context.ts';
import { gatewayPaths, stopGateway } from '../gateways.ts';
import { instanceNumbers } from '../instances.ts';

/**
 * Ends the gateway of a service, if it has one, and all of its instances but the first.
 *
 * @returns whether anything was running
 */
export async function endCluster(topology: Topology, id: string): Promise<boolean> {
  const { machine, clusters } = topology;
  const cluster = clusters.get(id);
  if (cluster !== undefined) {
    // The record stays: a failover may be under way.
    cluster.spec = null;
    cluster.isAdopted = false;
  }
  const isGatewayRunning = (await findDaemon(gatewayPaths(topology, id))) !== null;
  await stopGateway(topology, id);
  let ended = isGatewayRunning;
  for (const n of await instanceNumbers(machine, id)) {
    const paths = machine.layout.member(id, n);
    const server = n === 0 ? null : await findServer(paths);
    if (server === null) continue;
    ended = true;
    if (!(await stopServer(machine, server, 'immediate', 5000)) && !(await fence(paths)))
      throw new Error(`member ${n} does not end`);
  }
  return ended;
}
