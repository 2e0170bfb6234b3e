/**
 * A double of CloudNativePG's operator for tests: it makes real pods with real PostgreSQL out of
 * Clusters, and reports what CloudNativePG 1.30 reports. Each rule has its source in
 * docs/cloudnativepg.md. It has no webhook. Where CloudNativePG
 * waits for a lease or a delay, it goes on at once.
 */
import { createHash } from 'node:crypto';
import { Type, type Static } from 'typebox';
import type { Connection } from '../probe.ts';
import { awaitCondition, openApi, type Api } from './api.ts';
import {
  applicationOf,
  CLAIM,
  CLUSTER,
  CLUSTERS,
  isLeaving,
  JOB,
  JOBS,
  ordinalOf,
  POD,
  SECRET,
  walClaim,
  type Claim,
  type Cluster,
  type Job,
  type Pod,
} from './cluster.ts';
import { giveDefaults } from './defaults.ts';
import {
  keepStores,
  STORE_DEFINITION,
  STORE_DEFINITION_NAME,
  takeBaseBackups,
} from './object-stores.ts';
import { backUp } from './backups.ts';
import {
  BACKUP_DEFINITION,
  BACKUP_DEFINITION_NAME,
  DEFINITION,
  DEFINITION_NAME,
  DEFINITIONS,
  UNANSWERED_WEBHOOK,
  WEBHOOK_NAME,
  WEBHOOKS,
} from './definition.ts';
import { firstJob, settingsData } from './objects.ts';
import { makeObjects, reconcile, writeServices } from './reconcile.ts';
import type { Seen, Tools } from './status.ts';
import { atMoment, during, until } from '../../test/until.ts';

/** Between two rounds through all Clusters. */
const LOOK_MS = 250;
const NAMESPACE = 'cnpg-system';
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
const DEPLOYMENT = `${DEPLOYMENTS}/cnpg-controller-manager`;

/** Faults of the operator, for all Clusters. */
export type Faults = {
  /** The operator runs and changes nothing. */
  isStuck: boolean;
  /** The phase that it reports instead of the right one; null: that one. */
  phase: string | null;
  /** A server never becomes healthy, as far as a hibernation waits for it. */
  isUnhealthy: boolean;
};

export type Operator = Awaited<ReturnType<typeof startOperator>>;

/**
 * @param image for the pod that the operator's Deployment has
 * @param exec runs a script of the shell in the container of a server
 */
export async function startOperator(connection: Connection, image: string, exec: Tools['exec']) {
  const api = openApi(connection);
  await install(api, image);
  const tools: Tools = { api, image, exec };
  const faults: Faults = { isStuck: false, phase: null, isUnhealthy: false };
  let ending: AbortController | null = null;
  let looking: Promise<void> = Promise.resolve();
  const start = (): void => {
    ending = new AbortController();
    looking = look(tools, faults, ending.signal);
  };
  const stop = async (): Promise<void> => {
    ending?.abort();
    await looking;
  };
  start();
  return {
    faults,
    api,
    /** Ends the operator and leaves its webhook, which nobody answers. */
    leave: async (): Promise<void> => {
      await stop();
      await api.merge(DEPLOYMENT, { spec: { replicas: 0 } });
      await api.create(WEBHOOKS, UNANSWERED_WEBHOOK);
    },
    comeBack: async (): Promise<void> => {
      await api.remove(`${WEBHOOKS}/${WEBHOOK_NAME}`);
      await api.merge(DEPLOYMENT, { spec: { replicas: 1 } });
      start();
    },
    close: async (): Promise<void> => {
      await stop();
      api.close();
    },
  };
}

const READY = Type.Object({ status: Type.Object({ readyReplicas: Type.Optional(Type.Number()) }) });

async function install(api: Api, image: string): Promise<void> {
  await api.remove(`${WEBHOOKS}/${WEBHOOK_NAME}`);
  await api.create(DEFINITIONS, DEFINITION);
  await api.create(DEFINITIONS, BACKUP_DEFINITION);
  await api.create(DEFINITIONS, STORE_DEFINITION);
  await api.create('/api/v1/namespaces', { metadata: { name: NAMESPACE } });
  await makeDeployment(api, image, 'cnpg-controller-manager', {
    'app.kubernetes.io/name': 'cloudnative-pg',
  });
  await makeDeployment(api, image, 'barman-cloud', { app: 'barman-cloud' });
  for (const name of [DEFINITION_NAME, BACKUP_DEFINITION_NAME, STORE_DEFINITION_NAME])
    await awaitCondition(api, `${DEFINITIONS}/${name}`, 'Established');
  await until('the pod of the operator is ready', async () => {
    const { status } = await api.read(DEPLOYMENT, READY);
    return (status.readyReplicas ?? 0) > 0;
  });
}

/** A Deployment like that of an operator, whose pod does nothing. */
async function makeDeployment(
  api: Api,
  image: string,
  name: string,
  labels: Readonly<Record<string, string>>,
): Promise<void> {
  await api.create(DEPLOYMENTS, {
    metadata: { name, labels },
    spec: {
      replicas: 1,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          terminationGracePeriodSeconds: 0,
          containers: [
            { name: 'manager', image, imagePullPolicy: 'IfNotPresent', command: ['sleep', '1d'] },
          ],
        },
      },
    },
  });
}

const hashOf = (value: unknown): string =>
  createHash('sha256').update(JSON.stringify(value)).digest('hex');

/** Looks at all Clusters until the signal. An API server that does not answer is asked again. */
async function look(tools: Tools, faults: Faults, signal: AbortSignal): Promise<void> {
  const known = new Map<string, string>();
  const work = async (): Promise<void> => {
    try {
      if (!faults.isStuck) {
        await giveDefaults(tools.api, tools.image);
        await lookOnce(tools, faults, known);
      }
    } catch (error) {
      process.emitWarning(`operator double: ${String(error)}`);
    }
    await atMoment(LOOK_MS);
  };
  await during(() => !signal.aborted, work);
}

/** @param known the Services of the Clusters that have their objects, by their uids */
async function lookOnce(tools: Tools, faults: Faults, known: Map<string, string>): Promise<void> {
  const { api } = tools;
  const clusters = await api.list(`${CLUSTERS}/clusters`, CLUSTER);
  if (clusters.length === 0) return;
  const belonging = 'labelSelector=cnpg.io/cluster';
  const [pods, claims, jobs, secrets] = await Promise.all([
    api.list(`/api/v1/pods?${belonging}`, POD),
    api.list(`/api/v1/persistentvolumeclaims?${belonging}`, CLAIM),
    api.list(`${JOBS}/jobs?${belonging}`, JOB),
    // Others are not applied while a server runs: docs/cloudnativepg.md, fact 12.
    api.list('/api/v1/secrets?labelSelector=cnpg.io/reload=true', SECRET),
  ]);
  await backUp(tools, clusters, pods);
  await keepStores(tools, clusters, pods);
  await takeBaseBackups(tools, clusters, pods);
  // Beside each other: a change of a primary waits for programs in pods.
  await Promise.all(
    clusters.map((cluster) =>
      lookAt(tools, cluster, { pods, claims, jobs, secrets }, { faults, known }).catch(
        (error: unknown) =>
          process.emitWarning(`operator double: ${cluster.metadata.name}: ${String(error)}`),
      ),
    ),
  );
}

async function lookAt(
  tools: Tools,
  cluster: Cluster,
  listed: Listed,
  { faults, known }: Readonly<{ faults: Faults; known: Map<string, string> }>,
): Promise<void> {
  const { uid, deletionTimestamp } = cluster.metadata;
  if (deletionTimestamp !== undefined) return;
  const services = JSON.stringify(cluster.spec.managed.services);
  if (!known.has(uid)) await makeObjects(tools.api, cluster);
  else if (known.get(uid) !== services) await writeServices(tools.api, cluster);
  known.set(uid, services);
  await reconcile(tools, seenOf(cluster, listed), faults);
}

type Listed = Readonly<{
  pods: readonly Pod[];
  claims: readonly Claim[];
  jobs: readonly Job[];
  secrets: readonly Static<typeof SECRET>[];
}>;

function seenOf(cluster: Cluster, { pods, claims, jobs, secrets }: Listed): Seen {
  const { namespace, name } = cluster.metadata;
  const used = [applicationOf(cluster).secret.name, cluster.spec.certificates.serverTLSSecret];
  const versions = secrets
    .filter(({ metadata }) => metadata.namespace === namespace && used.includes(metadata.name))
    .map(({ metadata }) => metadata.resourceVersion);
  const roleNames = (cluster.spec.managed.roles ?? []).map((role) => role.passwordSecret.name);
  const roleSecrets = secrets
    .filter(({ metadata }) => metadata.namespace === namespace && roleNames.includes(metadata.name))
    .map(({ metadata }) => [metadata.name, metadata.resourceVersion] as const);
  const ownPods = pods.filter(({ metadata }) => metadata.namespace === namespace);
  const jobName = firstJob(cluster).metadata.name;
  const kept = claims.filter((claim) => !isLeaving(claim));
  const volumes = serversOf(cluster, kept);
  const names = volumes.map(({ metadata }) => metadata.name);
  return {
    cluster,
    claims: volumes,
    walClaims: kept.filter(
      ({ metadata }) =>
        metadata.namespace === namespace && names.map(walClaim).includes(metadata.name),
    ),
    job:
      jobs.find((one) => one.metadata.namespace === namespace && one.metadata.name === jobName) ??
      null,
    servers: serversOf(cluster, ownPods),
    volumes: hashOf([versions, settingsData(cluster, names.length > 0 ? names : [`${name}-1`])]),
    roleSecrets: new Map(roleSecrets),
  };
}

/** The pods or volumes of the servers of a Cluster, in the order of their numbers. */
function serversOf<T extends Pod | Claim>(cluster: Cluster, all: readonly T[]): T[] {
  const { namespace, name } = cluster.metadata;
  const ordinal = (one: T): number => ordinalOf(one) ?? 0;
  return all
    .filter(
      (one) =>
        one.metadata.namespace === namespace &&
        one.metadata.name.replace(/-\d+$/, '') === name &&
        ordinal(one) > 0,
    )
    .toSorted((a, b) => ordinal(a) - ordinal(b));
}
