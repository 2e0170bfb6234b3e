/**
 * A double of CloudNativePG's operator for tests: it makes real pods with real PostgreSQL out of
 * Clusters, for one server each, and reports what CloudNativePG 1.30 reports. Each rule has its
 * source in docs/cloudnativepg.md. It has no webhook, no standbys and no backups.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Type } from 'typebox';
import type { Connection } from '../../src/engine/kubernetes/api/kubeconfig.ts';
import { openApi, type Api } from './api.ts';
import { CLAIM, CLUSTER, CLUSTERS, POD, SECRET, serverName } from './cluster.ts';
import { giveDefaults } from './defaults.ts';
import {
  DEFINITION,
  DEFINITION_NAME,
  DEFINITIONS,
  UNANSWERED_WEBHOOK,
  WEBHOOK_NAME,
  WEBHOOKS,
} from './definition.ts';
import { initdbName, settingsData } from './objects.ts';
import { makeObjects, reconcile, type Seen } from './reconcile.ts';

/** Between two rounds through all Clusters. */
const LOOK_MS = 250;
const NAMESPACE = 'cnpg-system';
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
const DEPLOYMENT = `${DEPLOYMENTS}/cnpg-controller-manager`;

/** Faults of the operator, for all Clusters. */
export type Faults = {
  /** It runs and changes nothing. */
  isStuck: boolean;
  /** The phase that it reports instead of the right one; null: that one. */
  phase: string | null;
};

export type Operator = Awaited<ReturnType<typeof startOperator>>;

/** @param image for the pod that the operator's Deployment has */
export async function startOperator(connection: Connection, image: string) {
  const api = openApi(connection);
  await install(api, image);
  const faults: Faults = { isStuck: false, phase: null };
  let ending: AbortController | null = null;
  let looking: Promise<void> = Promise.resolve();
  const start = (): void => {
    ending = new AbortController();
    looking = look(api, image, faults, ending.signal);
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

const ESTABLISHED = Type.Object({
  status: Type.Object({
    conditions: Type.Array(Type.Object({ type: Type.String(), status: Type.String() })),
  }),
});
const READY = Type.Object({ status: Type.Object({ readyReplicas: Type.Optional(Type.Number()) }) });

async function install(api: Api, image: string): Promise<void> {
  await api.remove(`${WEBHOOKS}/${WEBHOOK_NAME}`);
  await api.create(DEFINITIONS, DEFINITION);
  await api.create('/api/v1/namespaces', { metadata: { name: NAMESPACE } });
  const labels = { 'app.kubernetes.io/name': 'cloudnative-pg' };
  await api.create(DEPLOYMENTS, {
    metadata: { name: 'cnpg-controller-manager', labels },
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
  await until(async () => {
    const { status } = await api.read(`${DEFINITIONS}/${DEFINITION_NAME}`, ESTABLISHED);
    return status.conditions.some((one) => one.type === 'Established' && one.status === 'True');
  });
  await until(async () => ((await api.read(DEPLOYMENT, READY)).status.readyReplicas ?? 0) > 0);
}

const hashOf = (value: unknown): string =>
  createHash('sha256').update(JSON.stringify(value)).digest('hex');

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await sleep(100);
}

/** Looks at all Clusters until the signal. An API server that does not answer is asked again. */
async function look(api: Api, image: string, faults: Faults, signal: AbortSignal): Promise<void> {
  const known = new Set<string>();
  while (!signal.aborted) {
    try {
      if (!faults.isStuck) {
        await giveDefaults(api, image);
        await lookOnce(api, faults, known);
      }
    } catch (error) {
      process.emitWarning(`operator double: ${String(error)}`);
    }
    await sleep(LOOK_MS, undefined, { signal }).catch(() => undefined);
  }
}

/** @param known the uids of Clusters that have their objects */
async function lookOnce(api: Api, { phase }: Faults, known: Set<string>): Promise<void> {
  const clusters = await api.list(`${CLUSTERS}/clusters`, CLUSTER);
  if (clusters.length === 0) return;
  const belonging = 'labelSelector=cnpg.io/cluster';
  const [pods, claims, secrets] = await Promise.all([
    api.list(`/api/v1/pods?${belonging}`, POD),
    api.list(`/api/v1/persistentvolumeclaims?${belonging}`, CLAIM),
    // Others are not applied while a server runs: docs/cloudnativepg.md, fact 12.
    api.list('/api/v1/secrets?labelSelector=cnpg.io/reload=true', SECRET),
  ]);
  for (const cluster of clusters) {
    const { namespace, uid, deletionTimestamp } = cluster.metadata;
    if (deletionTimestamp !== undefined) continue;
    if (!known.has(uid)) await makeObjects(api, cluster);
    known.add(uid);
    const find = <T extends (typeof pods)[number] | (typeof claims)[number]>(
      all: readonly T[],
      name: string,
    ): T | null =>
      all.find((one) => one.metadata.namespace === namespace && one.metadata.name === name) ?? null;
    const { bootstrap, certificates } = cluster.spec;
    const used = [bootstrap.initdb.secret.name, certificates.serverTLSSecret];
    const versions = secrets
      .filter(({ metadata }) => metadata.namespace === namespace && used.includes(metadata.name))
      .map(({ metadata }) => metadata.resourceVersion);
    const seen: Seen = {
      cluster,
      claim: find(claims, serverName(cluster)),
      initdb: find(pods, initdbName(cluster)),
      server: find(pods, serverName(cluster)),
      volumes: hashOf([versions, settingsData(cluster)]),
    };
    await reconcile(api, seen, phase);
  }
}
