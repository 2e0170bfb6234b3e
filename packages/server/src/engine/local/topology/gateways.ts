/** The gateways of clusters and read replica sets: the same steps for both. */
import type { DaemonPaths } from '../host/layout.ts';
import { type Owner, gatewayOwnerOf } from '../host/users.ts';
import { assertPlace } from '../network/networks.ts';
import {
  applyAllowedNetworks,
  closeGateway,
  gatewayConfig,
  openGateway,
  prepareGateway,
  routeTo,
  setGatewayConfig,
} from '../proxy/gateway.ts';
import { listenerFor, type Topology } from './context.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';

export function gatewayPaths({ machine }: Pick<Topology, 'machine'>, id: string): DaemonPaths {
  return machine.layout.gateway(id);
}

/** Asked for each use: the user of a service may change while a step runs. */
function ownerFor({ machine }: Topology, id: string): Owner | null {
  return gatewayOwnerOf(machine, machine.layout.service(id));
}

/** Watches a gateway that runs, if it is not watched yet: after a start of the control plane. */
export async function watchGateway(
  { machine, gateways, changed }: Topology,
  id: string,
): Promise<void> {
  const paths = machine.layout.gateway(id);
  if (!gateways.isWatched(paths) && !(await gateways.watch(id, paths))) changed(id);
}

/** Writes the files of a gateway, once HAProxy has accepted them. */
export async function writeGatewayFiles(topology: Topology, spec: PlacedSpec): Promise<void> {
  await prepareGateway(
    ownerFor(topology, spec.id),
    gatewayPaths(topology, spec.id),
    configOf(topology, spec),
    listenerFor(topology, spec),
  );
}

/** The configuration of a gateway: to one primary, or to the nodes of a set. */
function configOf(topology: Topology, spec: PlacedSpec): string {
  const { id, set, endpoint } = spec;
  const listen = { address: listenerFor(topology, spec).address, port: endpoint.port };
  const paths = gatewayPaths(topology, id);
  if (set === null) return gatewayConfig(paths, listen);
  const nodes = set.nodes.map(({ n, port }) => ({
    n,
    port,
    socketDirectory: topology.machine.layout.member(id, n).socket,
  }));
  return setGatewayConfig(paths, listen, nodes);
}

/** Starts a gateway whose files are written; it routes nowhere until it is configured. */
export async function launchGateway(topology: Topology, spec: PlacedSpec): Promise<void> {
  const { machine, gateways } = topology;
  const { id } = spec;
  await openGateway(
    machine,
    ownerFor(topology, id),
    gatewayPaths(topology, id),
    gateways,
    id,
    listenerFor(topology, spec),
  );
}

/** Writes the files of a gateway and starts it. @returns a line for the user */
export async function startGateway(topology: Topology, spec: PlacedSpec): Promise<string> {
  await assertPlace(listenerFor(topology, spec), topology.machine.networks);
  await writeGatewayFiles(topology, spec);
  await launchGateway(topology, spec);
  return `on port ${spec.endpoint.port}`;
}

/** Ends a gateway, if it runs; its sessions end with it. */
export async function stopGateway(topology: Topology, id: string): Promise<void> {
  await closeGateway(gatewayPaths(topology, id), topology.gateways);
}

/** Routes new sessions of the gateway of a cluster to a port of the loopback address. */
export async function routeGateway(topology: Topology, id: string, port: number): Promise<void> {
  await routeTo(gatewayPaths(topology, id), port);
}

/** Configures the allowed networks of a running gateway. @returns a line for the user */
export async function allowNetworks(topology: Topology, spec: PlacedSpec): Promise<string> {
  const { allowedNetworks } = listenerFor(topology, spec);
  const ended = await applyAllowedNetworks(
    ownerFor(topology, spec.id),
    gatewayPaths(topology, spec.id),
    allowedNetworks,
  );
  return `${ended} sessions of others ended`;
}
