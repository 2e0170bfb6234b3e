/** Compares a cluster with the metadata database. Pure. */
import type { LiveStatus } from '@howdah/contract';
import { namespaceOf } from '../names.ts';
import { GATEWAY_NAMESPACE, routePlace, routeTarget, type RoutePart } from '../network/routes.ts';
import type { ClusterInventory, Found, FoundCluster } from './inventory.ts';

/** A service of the region, as the metadata database has it. */
export type Recorded = Readonly<{
  id: string;
  /** null: it has no project yet. */
  projectId: string | null;
  status: LiveStatus;
  /** Whether no change was under way while the cluster was read. */
  isSettled: boolean;
  /** Whether no operation has created it yet: there may be nothing of it. */
  provisioning: boolean;
  port: number;
  pooler: boolean;
  poolerPort: number | null;
}>;

/** A region, as the metadata database has it. */
export type RecordedRegion = Readonly<{
  code: string;
  /** The domain of its services at the TLS gateway; null: they have ports of the nodes. */
  domain: string | null;
}>;

/** The ids of services, whatever their region. */
export type Ids = Readonly<{
  known: ReadonlySet<string>;
  /** Those in other regions, without a copy or a former Cluster here that a move knows. */
  elsewhere: ReadonlySet<string>;
  /** Those whose Cluster is kept here, stopped, since they moved away. */
  moved: ReadonlySet<string>;
}>;

/** @returns a sentence for each contradiction */
export function clusterAmiss(
  region: RecordedRegion,
  services: readonly Recorded[],
  { known, elsewhere, moved }: Ids,
  found: ClusterInventory,
): string[] {
  const { code } = region;
  return [
    ...found.clusters
      .filter(({ region, id }) => region === code && moved.has(id))
      .filter(({ state }) => !state.hibernated && !state.fenced)
      .map(
        (cluster) =>
          `${placeOf(cluster)} is of a service that has moved to another region, and is not ` +
          `stopped: kubectl --namespace ${cluster.namespace} annotate --overwrite ` +
          `clusters.postgresql.cnpg.io ${cluster.name} cnpg.io/hibernation=on`,
      ),
    ...found.clusters
      .filter(({ region, id }) => region === code && elsewhere.has(id))
      .map(
        (cluster) =>
          `${placeOf(cluster)} is of a service in another region, which does not move to this ` +
          `one: ${removalOf(cluster)} ends it with its data`,
      ),
    ...services
      .filter(({ isSettled }) => isSettled)
      .flatMap((service) => serviceAmiss(region, service, found).map((text) => `service ${text}`)),
    ...found.clusters
      .filter(({ region, id }) => region === code && !known.has(id))
      .map(
        (cluster) =>
          `${placeOf(cluster)}, which the metadata database does not know: another installation ` +
          `may have it; if none has, ${removalOf(cluster)} ends it with its data`,
      ),
    ...leftovers(known, found),
    ...found.clusters
      .filter(({ id, changes }) => known.has(id) && changes.length > 0)
      .map(
        (cluster) =>
          `${placeOf(cluster)} was changed: ${cluster.changes.join('; ')}. Howdah does not ` +
          'overwrite fields that others have set; see them with kubectl ' +
          `--namespace ${cluster.namespace} get ${cluster.kind.plural} ${cluster.name} ` +
          '-o yaml --show-managed-fields',
      ),
  ];
}

function serviceAmiss(
  region: RecordedRegion,
  service: Recorded,
  found: ClusterInventory,
): string[] {
  const { id, projectId, status, provisioning } = service;
  const mine = found.clusters.filter((cluster) => cluster.id === id);
  const cluster = mine.find(
    ({ namespace }) => projectId !== null && namespace === namespaceOf(projectId),
  );
  const strange = mine
    .filter((one) => one !== cluster)
    .map((one) => `${id} is not in ${placeOf(one)}, which has its label: ${removalOf(one)}`);
  if (cluster === undefined)
    return provisioning ? strange : [`${id} is ${status} and has no Cluster`, ...strange];
  const endpointsAmiss =
    region.domain === null ? portsAmiss(service, found) : routesAmiss(service, cluster.name, found);
  return [...strange, ...powerAmiss(service, cluster, found), ...endpointsAmiss];
}

function powerAmiss(
  { id, status, pooler }: Recorded,
  { state }: FoundCluster,
  { servers, poolers }: ClusterInventory,
): string[] {
  const count = servers.filter((server) => server.id === id).length;
  // Servers of a fenced Cluster are stopped in pods that stay.
  const isStopped = state.hibernated || state.fenced;
  const hasPooler = poolers.some((one) => one.id === id && one.isWanted);
  const needsPooler = pooler && status === 'READY';
  return [
    ...(status === 'READY' && (isStopped || count === 0)
      ? [`${id} is READY and ${isStopped ? 'its Cluster is stopped' : 'no server of it runs'}`]
      : []),
    ...(status === 'PAUSED' && !state.fenced && count > 0
      ? [`${id} is PAUSED and ${count} of its servers run`]
      : []),
    ...(status !== 'UNSTABLE' && hasPooler !== needsPooler
      ? [`${id} is ${status} and its pooler ${hasPooler ? 'runs' : 'does not run'}`]
      : []),
  ];
}

/** Ports at which nodes do not listen for the service, but must. */
function portsAmiss(service: Recorded, { ports }: ClusterInventory): string[] {
  const { id, projectId, status, pooler, poolerPort } = service;
  if (status !== 'READY' || projectId === null) return [];
  return [service.port, ...(pooler && poolerPort !== null ? [poolerPort] : [])].flatMap((port) => {
    const holder = ports.find((one) => one.port === port);
    if (holder === undefined) return [`${id} is READY and no Service has its port ${port}`];
    return holder.namespace === namespaceOf(projectId)
      ? []
      : [`${id} is READY and its port ${port} is that of ${holder.namespace}/${holder.name}`];
  });
}

/** Names that the TLS gateway does not connect to the service, but must. */
function routesAmiss(service: Recorded, cluster: string, { routes }: ClusterInventory): string[] {
  const { id, projectId, status, pooler } = service;
  if (status !== 'READY' || projectId === null) return [];
  const parts: readonly RoutePart[] = pooler ? ['servers', 'pooler'] : ['servers'];
  return parts.flatMap((part) => {
    const { name } = routePlace(id, part);
    const target = routeTarget({ cluster, projectId, part });
    const found = routes.find((route) => route.name === name);
    if (found?.target === target) return [];
    const is = found === undefined ? 'there is none' : `it is ${found.target || 'no ExternalName'}`;
    return [
      `${id} is READY and Service ${GATEWAY_NAMESPACE}/${name} is not its route, but ${is}: ` +
        'howdah service restart writes it again',
    ];
  });
}

/** Objects that services which are gone have left. */
function leftovers(known: ReadonlySet<string>, found: ClusterInventory): string[] {
  const owned = new Set(found.clusters.map(({ id }) => id));
  return [...found.parts, ...found.poolers, ...found.routes]
    .filter(({ id }) => !known.has(id) && !owned.has(id))
    .map((part) => `left over: ${placeOf(part)}: ${removalOf(part)}`);
}

const placeOf = ({ kind, namespace, name }: Found): string => `${kind.kind} ${namespace}/${name}`;

const removalOf = ({ kind, namespace, name }: Found): string => {
  const [group, isNamed] = kind.apiVersion.split('/');
  const resource = isNamed === undefined ? kind.plural : `${kind.plural}.${group}`;
  return `kubectl --namespace ${namespace} delete ${resource} ${name}`;
};
