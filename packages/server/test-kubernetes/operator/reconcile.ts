/** One round of the operator double for a Cluster: its changes, and the status that it writes. */
import { isDeepStrictEqual } from 'node:util';
import type { Api } from './api.ts';
import {
  clusterPath,
  isReady,
  pathIn,
  serverName,
  type Claim,
  type Cluster,
  type Condition,
  type Pod,
} from './cluster.ts';
import {
  CLAIM_STATUS,
  claimOf,
  initdbName,
  initdbPod,
  metadataOf,
  ROLE,
  serverPod,
  servicesOf,
  settingsData,
  settingsName,
  TEMPLATE,
  templateOf,
  VOLUMES,
} from './objects.ts';

const HIBERNATION = 'cnpg.io/hibernation';

/** The phases of CloudNativePG. */
const PHASES = {
  healthy: 'Cluster in healthy state',
  initdb: 'Setting up primary',
  waiting: 'Waiting for the instances to become active',
  restarting: 'Primary instance is being restarted without a switchover',
} as const;

/** A Cluster with its objects, as they were listed. */
export type Seen = Readonly<{
  cluster: Cluster;
  claim: Claim | null;
  initdb: Pod | null;
  server: Pod | null;
  /** The version of what is in the volumes of its server. */
  volumes: string;
}>;

/** The status that a round ends with. */
type Status = Readonly<{
  phase: string;
  ready: boolean;
  readyInstances: number | null;
  /** The condition of hibernation; null: there is none. */
  hibernation: Omit<Condition, 'type'> | null;
}>;

const HEALTHY: Status = {
  phase: PHASES.healthy,
  ready: true,
  readyInstances: null,
  hibernation: null,
};
const changing = (phase: string): Status => ({ ...HEALTHY, phase, ready: false });

/** Makes the objects that every Cluster has. Each call can be repeated. */
export async function makeObjects(api: Api, cluster: Cluster): Promise<void> {
  const { namespace } = cluster.metadata;
  for (const service of servicesOf(cluster))
    await api.createService(pathIn(namespace, 'services'), service);
  await api.create(pathIn(namespace, 'secrets'), {
    metadata: metadataOf(cluster, `${cluster.metadata.name}-replication`),
  });
  await api.create(pathIn(namespace, 'configmaps'), {
    metadata: metadataOf(cluster, settingsName(cluster)),
    data: settingsData(cluster),
  });
  await api.create(pathIn(namespace, 'persistentvolumeclaims'), claimOf(cluster));
}

/** @param phase written instead of the one that is right; null: that one */
export async function reconcile(api: Api, seen: Seen, phase: string | null): Promise<void> {
  const { cluster, claim } = seen;
  const { namespace } = cluster.metadata;
  const { size } = cluster.spec.storage;
  if (claim !== null && claim.spec.resources.requests.storage !== size)
    await api.merge(pathIn(namespace, 'persistentvolumeclaims', claim.metadata.name), {
      spec: { resources: { requests: { storage: size } } },
    });
  const wanted = cluster.metadata.annotations?.[HIBERNATION] === 'on';
  const status = wanted ? await hibernate(api, seen) : await run(api, seen);
  await writeStatus(api, seen, { ...status, ...(phase === null ? {} : { phase }) });
}

/** docs/cloudnativepg.md, facts 2 and 6. */
async function hibernate(api: Api, { cluster, claim, server }: Seen): Promise<Status> {
  const hibernating = (status: string, reason: string): Status => ({
    ...HEALTHY,
    hibernation: { status, reason },
  });
  const isLeaving = server?.metadata.deletionTimestamp !== undefined;
  const isHealthy = server === null ? isInitialized(claim) : isReady(server) || isLeaving;
  if (!isHealthy)
    return {
      ...changing(claim === null || !isInitialized(claim) ? PHASES.initdb : PHASES.waiting),
      hibernation: { status: 'False', reason: 'WaitingForHealthy' },
    };
  if (server === null) return hibernating('True', 'Hibernated');
  if (isLeaving) return hibernating('False', 'WaitingPodsDeletion');
  await api.remove(podPath(cluster));
  return hibernating('False', 'DeletingPods');
}

async function run(api: Api, seen: Seen): Promise<Status> {
  const { cluster, claim, server } = seen;
  // A Cluster that resumes is healthy for a round: docs/cloudnativepg.md, fact 2.
  if (conditionsOf(cluster).some(({ type }) => type === HIBERNATION)) return HEALTHY;
  if (!isInitialized(claim)) return initialize(api, seen);
  if (server === null) {
    const { namespace } = cluster.metadata;
    await api.create(pathIn(namespace, 'pods'), serverPod(cluster, seen.volumes));
    return changing(
      cluster.status?.phase === PHASES.restarting ? PHASES.restarting : PHASES.waiting,
    );
  }
  if (server.metadata.deletionTimestamp !== undefined)
    return changing(cluster.status?.phase ?? PHASES.waiting);
  if (server.metadata.annotations?.[TEMPLATE] !== templateOf(cluster)) {
    await api.remove(podPath(cluster));
    return changing(PHASES.restarting);
  }
  await renewVolumes(api, seen, server);
  if (!isReady(server)) return changing(PHASES.waiting);
  // The role follows Ready in the next round: docs/cloudnativepg.md, fact 7.
  if (conditionsOf(cluster).some(({ type, status }) => type === 'Ready' && status === 'True'))
    await api.merge(podPath(cluster), { metadata: { labels: { [ROLE]: 'primary' } } });
  return { ...HEALTHY, readyInstances: 1 };
}

/** Runs initdb, with an image that cannot be pulled for ever: docs/cloudnativepg.md, fact 6. */
async function initialize(api: Api, { cluster, claim, initdb }: Seen): Promise<Status> {
  const { namespace } = cluster.metadata;
  if (initdb === null) await api.create(pathIn(namespace, 'pods'), initdbPod(cluster));
  else if (initdb.status?.phase === 'Succeeded' && claim !== null) {
    await api.merge(pathIn(namespace, 'persistentvolumeclaims', claim.metadata.name), {
      metadata: { annotations: { [CLAIM_STATUS]: 'ready' } },
    });
    await api.remove(pathIn(namespace, 'pods', initdbName(cluster)), 0);
  }
  return changing(PHASES.initdb);
}

const isInitialized = (claim: Claim | null): boolean =>
  claim?.metadata.annotations?.[CLAIM_STATUS] === 'ready';

const podPath = (cluster: Cluster): string =>
  pathIn(cluster.metadata.namespace, 'pods', serverName(cluster));

const conditionsOf = ({ status }: Cluster): readonly Condition[] => status?.conditions ?? [];

/** Settings and secrets reach a running server: docs/cloudnativepg.md, fact 12. */
async function renewVolumes(api: Api, { cluster, volumes }: Seen, server: Pod): Promise<void> {
  if (server.metadata.annotations?.[VOLUMES] === volumes) return;
  const { namespace } = cluster.metadata;
  await api.merge(pathIn(namespace, 'configmaps', settingsName(cluster)), {
    data: settingsData(cluster),
  });
  await api.merge(podPath(cluster), { metadata: { annotations: { [VOLUMES]: volumes } } });
}

async function writeStatus(api: Api, { cluster, server }: Seen, status: Status): Promise<void> {
  const { phase, ready, readyInstances, hibernation } = status;
  const conditions: Condition[] = [
    // From the first moment on: docs/cloudnativepg.md, facts 1 and 5.
    { type: 'Initialized', status: 'True', reason: 'Seen' },
    { type: 'ContinuousArchiving', status: 'True', reason: 'Seen' },
    { type: 'Ready', status: ready ? 'True' : 'False', reason: 'Seen' },
    ...(hibernation === null ? [] : [{ type: HIBERNATION, ...hibernation }]),
  ];
  const before = cluster.status;
  if (
    before?.phase === phase &&
    (before.readyInstances ?? null) === readyInstances &&
    isDeepStrictEqual(before.conditions, conditions)
  )
    return;
  const primary = server === null ? {} : { currentPrimary: serverName(cluster) };
  await api.merge(`${clusterPath(cluster)}/status`, {
    status: { phase, readyInstances, conditions, instances: 1, ...primary },
  });
}
