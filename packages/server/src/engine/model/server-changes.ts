/** The changes of servers that steps consist of; each also writes what a server would log. */
import type { Size } from '@howdah/contract';
import { chooseServers, numberNodes } from '../records.ts';
import type { ServiceSpec } from '../spec.ts';
import { writeLog, type ModelNode, type ModelService } from './state.ts';

/** The versions of PostgreSQL that services are said to run, by their major; newest first. */
export const MODEL_VERSIONS = [
  { major: 18, version: '18.4' },
  { major: 17, version: '17.10' },
] as const;

/** The version of a service; those of older releases had no other than the newest. */
export function versionOf({ major }: Pick<ModelService, 'major'>): string {
  return MODEL_VERSIONS.find((one) => one.major === major)?.version ?? MODEL_VERSIONS[0].version;
}

/** The numbers of the servers that a spec asks for. They need no ports: nothing listens there. */
export function wantedNodes(
  { ha, set }: ServiceSpec,
  { primary, nodes }: Pick<ModelService, 'primary' | 'nodes'>,
): number[] {
  if (set !== null) return numberNodes(set.nodes);
  if (ha === null) return [0];
  const existing = nodes.map(({ n }) => n);
  return chooseServers(primary, existing, ha.replicas + 1);
}

/** The ports on which clients find a service. */
export function portsOf({ endpoint, pooler }: ServiceSpec): number[] {
  return pooler === null ? [endpoint.port] : [endpoint.port, pooler.port];
}

/** The network of its listeners: that of its VPC, if it has an address of its own there. */
export function placeOf({ vpc }: Pick<ServiceSpec, 'vpc'>): string | null {
  return vpc === null || vpc.address === null ? null : vpc.id;
}

/** Why something is moved to the desired network. */
export function placeWhy({ vpc }: Pick<ServiceSpec, 'vpc'>): string {
  return vpc === null ? 'to leave its VPC' : `to move into the VPC ${vpc.id}`;
}

const copyOf = (networks: readonly string[] | null): string[] | null =>
  networks === null ? null : [...networks];

export function sameNetworks(a: readonly string[] | null, b: readonly string[] | null): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** Why a server must be started again; null: it need not. */
export function restartWhy(
  node: Pick<ModelNode, 'size' | 'libraries' | 'restarts'>,
  spec: Pick<ServiceSpec, 'size' | 'preload' | 'restarts'>,
): string | null {
  if (compareSettings(node, spec) !== 'current') return 'for its new settings';
  return (node.restarts ?? 0) === spec.restarts ? null : 'as requested';
}

/** Whether a size is the desired one, or has less or more memory. */
export function compareSizes(size: Size, wanted: Size): 'current' | 'smaller' | 'larger' {
  if (JSON.stringify(sizeKey(size)) === JSON.stringify(sizeKey(wanted))) return 'current';
  return sizeKey(size).memoryGbs < sizeKey(wanted).memoryGbs ? 'smaller' : 'larger';
}

const sizeKey = (size: Size): { cpuMillis: number; memoryGbs: number } =>
  size === 'shared'
    ? { cpuMillis: 0, memoryGbs: 0 }
    : { cpuMillis: size.cpuMillis, memoryGbs: size.memoryGbs };

/** The same for the settings of a server: its size, and the libraries that it loads. */
export function compareSettings(
  { size, libraries = [] }: Pick<ModelNode, 'size' | 'libraries'>,
  { size: wanted, preload }: Pick<ServiceSpec, 'size' | 'preload'>,
): 'current' | 'smaller' | 'larger' {
  const compared = compareSizes(size, wanted);
  if (compared !== 'current' || libraries.join() === preload.join()) return compared;
  return libraries.length < preload.length ? 'smaller' : 'larger';
}

/** The node of this number. @throws Error when there is none */
export function nodeOf(service: ModelService, n: number): ModelNode {
  const node = service.nodes.find((candidate) => candidate.n === n);
  if (node === undefined) throw new Error(`service ${service.id} has no server ${n}`);
  return node;
}

/** The files of a service as its spec asks for. */
export function writeFiles(service: ModelService, spec: ServiceSpec): void {
  service.files = {
    size: spec.size,
    libraries: [...spec.preload],
    storageGb: spec.storageGb,
    allowedNetworks: copyOf(spec.allowedNetworks),
  };
}

export function areFilesCurrent({ files }: ModelService, spec: ServiceSpec): boolean {
  return (
    compareSettings(files, spec) === 'current' &&
    files.storageGb === spec.storageGb &&
    sameNetworks(files.allowedNetworks, spec.allowedNetworks)
  );
}

/** Adds a stopped server with data. */
export function addNode(
  service: ModelService,
  spec: ServiceSpec,
  n: number,
  data: ModelNode['data'],
): void {
  const node: ModelNode = {
    n,
    data,
    runs: false,
    size: spec.size,
    libraries: [...spec.preload],
    place: placeOf(spec),
    isServing: false,
  };
  service.major ??= spec.major ?? MODEL_VERSIONS[0].major;
  service.nodes = [...service.nodes.filter((other) => other.n !== n), node].toSorted(
    (a, b) => a.n - b.n,
  );
}

/** Starts the server of a node. */
export function startServer(
  service: ModelService,
  spec: ServiceSpec,
  n: number,
  nowMs: number,
): void {
  const node = nodeOf(service, n);
  const { size, preload, restarts } = spec;
  Object.assign(node, {
    runs: true,
    size,
    libraries: [...preload],
    restarts,
    place: placeOf(spec),
  });
  if (node.data === 'primary') service.stoppedMs = null;
  writeLog(service, n, nowMs, `starting PostgreSQL ${versionOf(service)} (simulated)`);
  writeLog(
    service,
    n,
    nowMs,
    node.data === 'primary'
      ? 'database system is ready to accept connections'
      : 'database system is ready to accept read-only connections',
  );
}

/** Ends the server of a node: in order, or as a crash would. */
export function stopServer(
  service: ModelService,
  n: number,
  nowMs: number,
  how: 'fast' | 'killed',
): void {
  const node = nodeOf(service, n);
  Object.assign(node, { runs: false, isServing: false });
  if (node.data === 'primary') service.stoppedMs = nowMs;
  if (how === 'fast') {
    writeLog(service, n, nowMs, 'received fast shutdown request');
    writeLog(service, n, nowMs, 'database system is shut down');
  } else writeLog(service, n, nowMs, 'server process was terminated by signal 9: Killed', 'FATAL');
}

/** Makes a standby the primary; the one before it has to follow from then on. */
export function changePrimary(service: ModelService, to: number, nowMs: number): void {
  const from = service.primary;
  service.primary = to;
  Object.assign(nodeOf(service, to), { data: 'primary' });
  service.stoppedMs = null;
  writeLog(service, to, nowMs, 'received promote request');
  writeLog(service, to, nowMs, 'database system is ready to accept connections');
  const before = service.nodes.find(({ n }) => n === from && from !== to);
  if (before?.runs === true) stopServer(service, before.n, nowMs, 'fast');
}

/** Starts the gateway where it must be, or gives it what it must know. */
export function openGateway(service: ModelService, spec: ServiceSpec): void {
  service.gateway = { place: placeOf(spec), allowedNetworks: copyOf(spec.allowedNetworks) };
  service.ports = portsOf(spec);
}
