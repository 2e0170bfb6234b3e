/**
 * Chooses the servers of a service, and reserves a port for each before anything listens there. The
 * ports of servers that do not exist any more are released.
 */
import { NoPortLeft, type HighAvailability, type ServiceSpec } from '../../spec.ts';
import { chooseServers, numberNodes, type ClusterRecord, type ServerPort } from '../../records.ts';
import { portIsFree } from '../postgres/server.ts';
import type { Topology } from './context.ts';
import { instanceNumbers } from './instances.ts';
import type { PlacedCluster, PlacedSpec } from '../../postgres/decisions/placed-spec.ts';

/** Where the servers of a cluster or a set listen, behind its gateway. */
export const LOOPBACK = '127.0.0.1';

/** The spec with its servers, and why some are missing; null: none is. */
export type Placement = { readonly spec: PlacedSpec; readonly lack: string | null };

/** @throws Error when the service is gone from the metadata database */
export async function placeServers(topology: Topology, spec: ServiceSpec): Promise<Placement> {
  const { ha, set } = spec;
  if (set !== null) {
    const wanted = numberNodes(set.nodes);
    const { servers, lack } = await portsFor(
      topology,
      spec,
      await recordOf(topology, spec),
      wanted,
    );
    return { spec: { ...spec, ha: null, set: { ...set, nodes: servers } }, lack };
  }
  if (ha === null) return spec.sleep === undefined ? alone(spec) : behindRelay(topology, spec);
  const record = await recordOf(topology, spec);
  const { servers, lack } = await portsFor(topology, spec, record, wantedServers(ha, record));
  return { spec: { ...spec, ha: clusterOf(ha, record, servers), set }, lack };
}

const alone = (spec: ServiceSpec): Placement => ({
  spec: { ...spec, ha: null, set: null },
  lack: null,
});

/** Without a port for its server, a service stays on the port of its endpoint, and awake. */
async function behindRelay(topology: Topology, spec: ServiceSpec): Promise<Placement> {
  const { servers, lack } = await portsFor(topology, spec, await recordOf(topology, spec), [0]);
  const placed = alone(spec);
  const [server] = servers;
  if (server === undefined) return { ...placed, lack };
  return { spec: { ...placed.spec, serverPort: server.port }, lack };
}

async function recordOf({ records }: Topology, { id }: ServiceSpec): Promise<ClusterRecord> {
  const record = await records.read(id);
  if (record === null) throw new Error(`service ${id} is not in the metadata database any more`);
  return record;
}

function wantedServers({ replicas }: HighAvailability, record: ClusterRecord): number[] {
  const existing = record.servers.map(({ n }) => n);
  return chooseServers(record.primary, existing, replicas + 1);
}

/**
 * Without a port for its primary, a service stays as it was before its first replica: one server
 * on the endpoint's port.
 */
function clusterOf(
  ha: HighAvailability,
  { primary, switchover }: ClusterRecord,
  servers: readonly ServerPort[],
): PlacedCluster | null {
  if (!servers.some(({ n }) => n === primary)) return null;
  const { sync, drill } = ha;
  return { servers, primary, sync, leave: ha.switchover && switchover ? primary : null, drill };
}

type Ports = { readonly servers: readonly ServerPort[]; readonly lack: string | null };

/** The ports of the wanted servers, as many as have one. A paused service needs no new ones. */
async function portsFor(
  topology: Topology,
  { id, power }: ServiceSpec,
  { servers }: ClusterRecord,
  wanted: readonly number[],
): Promise<Ports> {
  const { machine, records } = topology;
  const extra = servers.map(({ n }) => n).filter((n) => !wanted.includes(n));
  if (extra.length > 0) {
    const existing = await instanceNumbers(machine, id);
    const removed = extra.filter((n) => !existing.includes(n));
    if (removed.length > 0) await records.releaseServers(id, removed);
  }
  const missing = wanted.filter((number) => !servers.some(({ n }) => n === number));
  const chosen = (all: readonly ServerPort[]) => all.filter(({ n }) => wanted.includes(n));
  if (missing.length === 0 || power === 'paused') return { servers: chosen(servers), lack: null };
  try {
    const isUsable = (port: number) => portIsFree(LOOPBACK, port);
    const reserved = await records.reserveServers(id, missing, isUsable);
    return { servers: chosen(reserved), lack: null };
  } catch (error) {
    if (error instanceof NoPortLeft) return { servers: chosen(servers), lack: error.message };
    throw error;
  }
}
