/** One round of the operator double for a Cluster: its changes, and the status that it writes. */
import { Type } from 'typebox';
import { issueClientCertificate, makeAuthority } from '../../test/probe.ts';
import type { Api } from './api.ts';
import { secretOf } from './authority.ts';
import {
  currentPrimary,
  isLeaving,
  isOutOfSpace,
  isOver,
  isReady,
  isReplica,
  JOBS,
  ordinalOf,
  pathIn,
  serverName,
  walClaim,
  type Claim,
  type Cluster,
  type Condition,
  type Pod,
} from './cluster.ts';
import {
  CLAIM_STATUS,
  claimsOf,
  clientAuthorityName,
  firstJob,
  metadataOf,
  replicationName,
  ROLE,
  serverPod,
  servicesOf,
  settingsData,
  settingsName,
  TEMPLATE,
  templateOf,
  VOLUMES,
} from './objects.ts';
import { changePrimary, endRecovery, standbyOf } from './primary.ts';
import { applyRoles } from './roles.ts';
import {
  changing,
  HEALTHY,
  HIBERNATION,
  PHASES,
  writeStatus,
  type Seen,
  type Status,
  type Tools,
} from './status.ts';

/** Makes the objects that every Cluster has. Each call can be repeated. */
export async function makeObjects(api: Api, cluster: Cluster): Promise<void> {
  const { namespace } = cluster.metadata;
  await writeServices(api, cluster);
  await api.create(pathIn(namespace, 'secrets'), {
    metadata: metadataOf(cluster, clientAuthorityName(cluster)),
    stringData: secretOf(await makeAuthority()),
  });
  await makeStandbyCertificate(api, cluster);
  await api.create(pathIn(namespace, 'configmaps'), {
    metadata: metadataOf(cluster, settingsName(cluster)),
    data: settingsData(cluster, [serverName(cluster, 1)]),
  });
  // A Cluster that lost its first server in a change of the primary does not get it back.
  if (cluster.status?.currentPrimary === undefined)
    for (const claim of claimsOf(cluster, 1, 'initializing'))
      await api.create(pathIn(namespace, 'persistentvolumeclaims'), claim);
}

const AUTHORITY = Type.Object({
  data: Type.Object({ 'ca.crt': Type.String(), 'ca.key': Type.String() }),
});
const decoded = (text: string): string => Buffer.from(text, 'base64').toString('utf8');

/** By the authority of its clients, which may have been made before: fact 35. */
async function makeStandbyCertificate(api: Api, cluster: Cluster): Promise<void> {
  const secrets = pathIn(cluster.metadata.namespace, 'secrets');
  const { data } = await api.read(`${secrets}/${clientAuthorityName(cluster)}`, AUTHORITY);
  const authority = {
    certificatePem: decoded(data['ca.crt']),
    keyPem: decoded(data['ca.key']),
  };
  const issued = await issueClientCertificate(authority, 'streaming_replica');
  await api.create(secrets, {
    metadata: metadataOf(cluster, replicationName(cluster)),
    type: 'kubernetes.io/tls',
    stringData: { 'tls.crt': issued.certificatePem, 'tls.key': issued.keyPem },
  });
}

/** Services are patched when their template changes (`updateStrategy: patch`). */
export async function writeServices(api: Api, cluster: Cluster): Promise<void> {
  for (const service of servicesOf(cluster))
    await api.writeService(pathIn(cluster.metadata.namespace, 'services'), service);
}

export type RoundFaults = Readonly<{
  /** Written instead of the phase that is right; null: that one. */
  phase: string | null;
  /** No hibernation begins: a server never becomes healthy. */
  isUnhealthy: boolean;
}>;

export async function reconcile(tools: Tools, seen: Seen, faults: RoundFaults): Promise<void> {
  const { api } = tools;
  const { cluster } = seen;
  await growVolumes(api, seen);
  await renewVolumes(api, seen);
  const wanted = cluster.metadata.annotations?.[HIBERNATION] === 'on';
  const status = wanted ? await hibernate(api, seen, faults) : await run(tools, seen);
  const { phase } = faults;
  await writeStatus(api, cluster, {
    ...firstPrimary(seen),
    ...status,
    ...(phase === null ? {} : { phase }),
  });
}

async function growVolumes(api: Api, { cluster, claims, walClaims }: Seen): Promise<void> {
  const { metadata, spec: wanted } = cluster;
  const sized = [
    ...claims.map((claim) => [claim, wanted.storage.size] as const),
    ...walClaims.map((claim) => [claim, wanted.walStorage?.size] as const),
  ];
  for (const [claim, size] of sized)
    if (size !== undefined && claim.spec.resources.requests.storage !== size)
      await api.merge(pathIn(metadata.namespace, 'persistentvolumeclaims', claim.metadata.name), {
        spec: { resources: { requests: { storage: size } } },
      });
}

/** The primary of a Cluster whose status has none yet, once its pod is there. */
function firstPrimary({ cluster, servers }: Seen): Partial<Status> {
  if (cluster.status?.currentPrimary !== undefined || servers.length === 0) return {};
  const current = currentPrimary(cluster);
  return { currentPrimary: current, targetPrimary: current };
}

/** docs/cloudnativepg.md, facts 2 and 6. */
async function hibernate(
  api: Api,
  { claims, servers }: Seen,
  { isUnhealthy }: RoundFaults,
): Promise<Status> {
  const hibernating = (status: string, reason: string): Status => ({
    ...HEALTHY,
    hibernation: { status, reason },
  });
  const isMade = claims.length > 0 && claims.every(isInitialized);
  const isHealthy = isMade && servers.every((pod) => isReady(pod) || isLeaving(pod));
  if (!isHealthy || (isUnhealthy && servers.length > 0))
    return {
      ...changing(isMade ? PHASES.waiting : PHASES.initdb),
      hibernation: { status: 'False', reason: 'WaitingForHealthy' },
    };
  if (servers.length === 0) return hibernating('True', 'Hibernated');
  const staying = servers.filter((pod) => !isLeaving(pod));
  if (staying.length === 0) return hibernating('False', 'WaitingPodsDeletion');
  for (const pod of staying) await api.remove(podPath(pod));
  return hibernating('False', 'DeletingPods');
}

async function run(tools: Tools, seen: Seen): Promise<Status> {
  const { api } = tools;
  const { cluster, claims, servers } = seen;
  // A Cluster that resumes is healthy for a round: docs/cloudnativepg.md, fact 2.
  if (conditionsOf(cluster).some(({ type }) => type === HIBERNATION)) return HEALTHY;
  if (claims.length === 0 || !claims.every(isInitialized)) return initialize(api, seen);
  const over = servers.filter((pod) => isOver(pod) && !isLeaving(pod));
  for (const pod of over) await api.remove(podPath(pod));
  if (over.length > 0) return changing(cluster.status?.phase ?? PHASES.waiting);
  if (servers.some(isOutOfSpace)) return changing(PHASES.outOfSpace);
  const changed = await changePrimary(tools, seen);
  if (changed !== null) return changed;
  const current = currentPrimary(cluster);
  const primary = servers.find(({ metadata }) => metadata.name === current);
  if (await createPods(api, seen, primary)) {
    const isRestart = cluster.status?.phase === PHASES.restarting;
    return changing(isRestart ? PHASES.restarting : PHASES.waiting);
  }
  if (servers.some(isLeaving)) return changing(cluster.status?.phase ?? PHASES.waiting);
  // Standbys reach the primary by its label.
  if (primary !== undefined && claims.length > 1 && isReady(primary))
    await setRole(api, primary, 'primary');
  const replaced = await replaceOutdated(api, seen);
  if (replaced !== null) return replaced;
  if (!servers.every(isReady)) return changing(waitingPhase(cluster));
  if (await endRecovery(tools, seen)) return changing(PHASES.waiting);
  const scaled = await scale(api, seen);
  if (scaled !== null) return scaled;
  // The role follows Ready in the next round: docs/cloudnativepg.md, fact 7.
  if (conditionsOf(cluster).some(({ type, status }) => type === 'Ready' && status === 'True'))
    for (const pod of servers) await setRole(api, pod, pod === primary ? 'primary' : 'replica');
  await applyRoles(tools, seen);
  return { ...HEALTHY, readyInstances: servers.length };
}

/** While a replica is created, the phase says so; a change of servers alternates (fact 8). */
const waitingPhase = ({ status }: Cluster): string =>
  status?.phase === PHASES.joining ? PHASES.joining : PHASES.waiting;

/** Makes missing pods, that of the primary first. @returns whether one was missing */
async function createPods(api: Api, seen: Seen, primary: Pod | undefined): Promise<boolean> {
  const { cluster, claims, servers, volumes } = seen;
  const current = currentPrimary(cluster);
  const missing = claims
    .map(({ metadata }) => metadata.name)
    .filter((name) => !servers.some(({ metadata }) => metadata.name === name))
    // A standby that is ready before its primary would look like a successor.
    .filter((name) => name === current || (primary !== undefined && isReady(primary)));
  for (const name of missing)
    await api.create(pathIn(cluster.metadata.namespace, 'pods'), serverPod(cluster, name, volumes));
  return missing.length > 0;
}

/**
 * Replaces the pods that another template has changed for: standbys first, one after the other,
 * then the primary by a switchover (docs/cloudnativepg.md, fact 8).
 */
async function replaceOutdated(api: Api, seen: Seen): Promise<Status | null> {
  const { cluster, servers } = seen;
  const outdated = servers.filter(
    ({ metadata }) => metadata.annotations?.[TEMPLATE] !== templateOf(cluster),
  );
  const [first] = outdated;
  if (first === undefined) return null;
  const current = currentPrimary(cluster);
  const standby = outdated.find(({ metadata }) => metadata.name !== current);
  // The primaryUpdateMethod is restart, and all servers of a replica cluster are standbys.
  if (servers.length === 1 || (isReplica(cluster) && standby === undefined)) {
    await api.remove(podPath(first));
    return changing(PHASES.restarting);
  }
  if (!servers.every(isReady)) return changing(PHASES.waiting);
  if (standby !== undefined) {
    await api.remove(podPath(standby));
    return changing(PHASES.upgrading);
  }
  const successor = standbyOf(seen);
  if (successor === null) return changing(PHASES.upgrading);
  return { ...changing(PHASES.switchover), targetPrimary: successor };
}

/** Adds or removes one server. @returns null: there are as many as there must be */
async function scale(api: Api, { cluster, claims, servers }: Seen): Promise<Status | null> {
  const { namespace } = cluster.metadata;
  const { instances } = cluster.spec;
  if (claims.length === instances) return null;
  if (claims.length < instances) {
    const ordinals = claims.map((claim) => ordinalOf(claim) ?? 0);
    for (const claim of claimsOf(cluster, Math.max(...ordinals) + 1, 'ready'))
      await api.create(pathIn(namespace, 'persistentvolumeclaims'), claim);
    return changing(PHASES.joining);
  }
  const current = currentPrimary(cluster);
  const last = claims.findLast(({ metadata }) => metadata.name !== current);
  if (last === undefined) return null;
  const { name } = last.metadata;
  await api.remove(pathIn(namespace, 'persistentvolumeclaims', name));
  if (cluster.spec.walStorage !== undefined)
    await api.remove(pathIn(namespace, 'persistentvolumeclaims', walClaim(name)));
  for (const pod of servers) if (pod.metadata.name === name) await api.remove(podPath(pod));
  return changing(PHASES.waiting);
}

/** Has a job make the data, with an image that cannot be pulled for ever (fact 6). */
async function initialize(api: Api, { cluster, claims, job }: Seen): Promise<Status> {
  const { namespace } = cluster.metadata;
  const [claim] = claims;
  const jobs = `${JOBS}/namespaces/${namespace}/jobs`;
  if (job === null) await api.create(jobs, firstJob(cluster));
  else if ((job.status?.succeeded ?? 0) > 0 && claim !== undefined) {
    await api.merge(pathIn(namespace, 'persistentvolumeclaims', claim.metadata.name), {
      metadata: { annotations: { [CLAIM_STATUS]: 'ready' } },
    });
    await api.remove(`${jobs}/${job.metadata.name}`);
  }
  return changing(PHASES.initdb);
}

const isInitialized = ({ metadata }: Claim): boolean =>
  metadata.annotations?.[CLAIM_STATUS] === 'ready';

const podPath = ({ metadata }: Pod): string => pathIn(metadata.namespace, 'pods', metadata.name);

const conditionsOf = ({ status }: Cluster): readonly Condition[] => status?.conditions ?? [];

async function setRole(api: Api, pod: Pod, role: 'primary' | 'replica'): Promise<void> {
  if (pod.metadata.labels?.[ROLE] === role) return;
  await api.merge(podPath(pod), { metadata: { labels: { [ROLE]: role } } });
}

/** Settings and secrets reach running servers: docs/cloudnativepg.md, fact 12. */
async function renewVolumes(api: Api, { cluster, claims, servers, volumes }: Seen): Promise<void> {
  const { namespace } = cluster.metadata;
  const old = servers.filter(({ metadata }) => metadata.annotations?.[VOLUMES] !== volumes);
  // The pods that are about to be made have the same files.
  if (old.length === 0 && servers.length === claims.length) return;
  const names = claims.map(({ metadata }) => metadata.name);
  await api.merge(pathIn(namespace, 'configmaps', settingsName(cluster)), {
    data: settingsData(cluster, names),
  });
  for (const pod of old)
    await api.merge(podPath(pod), { metadata: { annotations: { [VOLUMES]: volumes } } });
}
