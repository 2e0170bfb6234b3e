/**
 * The Barman Cloud plugin, as far as the engine sees it: ObjectStores with their status, and base
 * backups. Its source: github.com/cloudnative-pg/plugin-barman-cloud, main after 0.13.
 */
import { createHash } from 'node:crypto';
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import type { Api } from './api.ts';
import { BASE_BACKUP, LIST_BACKUPS, removeOld } from './archive-scripts.ts';
import {
  archiverOf,
  archiveSourceOf,
  CLUSTERS,
  currentPrimary,
  isLeaving,
  isReady,
  METADATA,
  pathIn,
  type Cluster,
  type Pod,
} from './cluster.ts';
import { anything, key, object, quantities, text, yes, number } from './definition.ts';
import { metadataOf, storeName } from './objects.ts';
import { HIBERNATION, type Tools } from './status.ts';

export const STORE_DEFINITION_NAME = 'objectstores.barmancloud.cnpg.io';
const OBJECT_STORES = '/apis/barmancloud.cnpg.io/v1';

/** By hand, with the fields that the engine uses: api/v1/objectstore_types.go. */
export const STORE_DEFINITION = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: STORE_DEFINITION_NAME },
  spec: {
    group: 'barmancloud.cnpg.io',
    scope: 'Namespaced',
    names: {
      kind: 'ObjectStore',
      listKind: 'ObjectStoreList',
      plural: 'objectstores',
      singular: 'objectstore',
    },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: {
          openAPIV3Schema: object(
            {
              apiVersion: text,
              kind: text,
              metadata: { type: 'object' },
              spec: object(
                {
                  configuration: object(
                    {
                      destinationPath: { type: 'string', minLength: 1 },
                      endpointURL: text,
                      endpointCA: key,
                      s3Credentials: object({
                        accessKeyId: key,
                        secretAccessKey: key,
                        region: key,
                      }),
                      wal: object({
                        compression: {
                          type: 'string',
                          enum: ['bzip2', 'gzip', 'lz4', 'snappy', 'xz', 'zstd'],
                        },
                        maxParallel: number,
                      }),
                      data: object({
                        compression: { type: 'string', enum: ['bzip2', 'gzip', 'lz4', 'snappy'] },
                        immediateCheckpoint: yes,
                      }),
                    },
                    { required: ['destinationPath'] },
                  ),
                  retentionPolicy: { type: 'string', pattern: '^[1-9][0-9]*[dwm]$' },
                  instanceSidecarConfiguration: object({
                    resources: object({ requests: quantities, limits: quantities }),
                  }),
                },
                { required: ['configuration'] },
              ),
              status: anything,
            },
            { required: ['metadata', 'spec'] },
          ),
        },
      },
    ],
  },
};

const REFERENCE = Type.Object({ name: Type.String(), key: Type.String() });
const OBJECT_STORE = Type.Object({
  metadata: METADATA,
  spec: Type.Object({
    configuration: Type.Object({
      destinationPath: Type.String(),
      endpointURL: Type.String(),
      endpointCA: Type.Optional(REFERENCE),
      s3Credentials: Type.Object({
        accessKeyId: REFERENCE,
        secretAccessKey: REFERENCE,
        region: REFERENCE,
      }),
    }),
    retentionPolicy: Type.String({ pattern: '^[1-9][0-9]*d$' }),
  }),
});
type ObjectStore = Static<typeof OBJECT_STORE>;

const SECRET = Type.Object({ data: Type.Record(Type.String(), Type.String()) });

/** The bucket that a Cluster archives in or is recovered from; null: none, or it is not there. */
function storeOf(stores: readonly ObjectStore[], cluster: Cluster): ObjectStore | null {
  const name = (archiverOf(cluster) ?? archiveSourceOf(cluster))?.barmanObjectName;
  const { namespace } = cluster.metadata;
  const found = stores.find(
    ({ metadata }) => metadata.namespace === namespace && metadata.name === name,
  );
  return found ?? null;
}

/** The annotation of a pod that changes with its store: the kubelet then looks at once. */
const STORE = 'double.howdah.io/store';

/** Gives pods the settings that the sidecar reads again for each file: instance/internal/client. */
export async function keepStores(
  { api }: Tools,
  clusters: readonly Cluster[],
  pods: readonly Pod[],
): Promise<void> {
  const stores = await api.list(`${OBJECT_STORES}/objectstores`, OBJECT_STORE);
  for (const cluster of clusters) {
    const store = storeOf(stores, cluster);
    if (store === null || isLeaving(cluster)) continue;
    // A Cluster's namespace may be ending, which must not hold up the others.
    await keepStore(api, cluster, store, pods).catch((error: unknown) =>
      process.emitWarning(`operator double: ${cluster.metadata.name}: ${String(error)}`),
    );
  }
}

async function keepStore(
  api: Api,
  cluster: Cluster,
  store: ObjectStore,
  pods: readonly Pod[],
): Promise<void> {
  const data = await filesOf(api, cluster, store);
  const { namespace } = cluster.metadata;
  const own = pathIn(namespace, 'secrets');
  await api.create(own, { metadata: metadataOf(cluster, storeName(cluster)), stringData: data });
  await api.merge(`${own}/${storeName(cluster)}`, { stringData: data });
  const hash = createHash('sha256').update(JSON.stringify(data)).digest('hex');
  const old = pods.filter(
    ({ metadata }) =>
      metadata.namespace === namespace &&
      metadata.name.startsWith(`${cluster.metadata.name}-`) &&
      metadata.annotations?.[STORE] !== hash,
  );
  for (const { metadata } of old)
    await api.merge(pathIn(namespace, 'pods', metadata.name), {
      metadata: { annotations: { [STORE]: hash } },
    });
}

async function filesOf(api: Api, cluster: Cluster, { metadata, spec }: ObjectStore) {
  const { destinationPath, endpointURL, endpointCA, s3Credentials } = spec.configuration;
  const valueOf = async (reference: Static<typeof REFERENCE>): Promise<string> => {
    const path = pathIn(metadata.namespace, 'secrets', reference.name);
    const { data } = await api.read(path, SECRET);
    return Buffer.from(data[reference.key] ?? '', 'base64').toString('utf8');
  };
  const variables = {
    DESTINATION: destinationPath,
    ENDPOINT: endpointURL,
    SERVER_NAME: archiverOf(cluster)?.serverName ?? '',
    AWS_ACCESS_KEY_ID: await valueOf(s3Credentials.accessKeyId),
    AWS_SECRET_ACCESS_KEY: await valueOf(s3Credentials.secretAccessKey),
    AWS_DEFAULT_REGION: await valueOf(s3Credentials.region),
    ...(endpointCA === undefined ? {} : { AWS_CA_BUNDLE: '/store/ca.crt' }),
  };
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}='${value}'\n`);
  return {
    env: lines.join(''),
    ...(endpointCA === undefined ? {} : { 'ca.crt': await valueOf(endpointCA) }),
  };
}

const BACKUP = Type.Object({
  metadata: METADATA,
  spec: Type.Object({
    cluster: Type.Object({ name: Type.String() }),
    method: Type.Literal('plugin'),
  }),
  status: Type.Optional(Type.Object({ phase: Type.Optional(Type.String()) })),
});
type Backup = Static<typeof BACKUP>;

/** Takes the base backups that are asked for, each beside the rounds. */
export async function takeBaseBackups(
  tools: Tools,
  clusters: readonly Cluster[],
  pods: readonly Pod[],
): Promise<void> {
  const { api } = tools;
  for (const backup of await api.list(`${CLUSTERS}/backups`, BACKUP)) {
    if (backup.status?.phase !== undefined) continue;
    const { namespace } = backup.metadata;
    const named = (name: string) => (one: Readonly<{ metadata: Static<typeof METADATA> }>) =>
      one.metadata.namespace === namespace && one.metadata.name === name;
    const cluster = clusters.find(named(backup.spec.cluster.name));
    const primary = cluster && pods.find(named(currentPrimary(cluster)));
    if (cluster?.metadata.annotations?.[HIBERNATION] === 'on')
      await writeBackup(api, backup, {
        phase: 'failed',
        error: 'cannot backup a hibernated cluster',
      });
    if (cluster === undefined || primary === undefined || !isReady(primary)) continue;
    await writeBackup(api, backup, { phase: 'running', startedAt: new Date().toISOString() });
    void take(tools, cluster, primary, backup);
  }
}

async function take(tools: Tools, cluster: Cluster, primary: Pod, backup: Backup): Promise<void> {
  const { api, exec } = tools;
  try {
    const store = storeOf(await api.list(`${OBJECT_STORES}/objectstores`, OBJECT_STORE), cluster);
    await exec(primary, BASE_BACKUP);
    if (store !== null) await maintain(tools, cluster, primary, store);
    await writeBackup(api, backup, { phase: 'completed', stoppedAt: new Date().toISOString() });
  } catch (error) {
    await writeBackup(api, backup, { phase: 'failed', error: String(error).slice(-500) }).catch(
      () => undefined,
    );
  }
}

const LISTED = Type.Object({
  backups_list: Type.Array(
    Type.Object({ status: Type.String(), end_time_iso: Type.Optional(Type.Unknown()) }),
  ),
});

/**
 * Applies the retention, and writes what is left: maintenance of instance/retention.go, and
 * updateRecoveryWindow. The plugin does so after a backup and every half an hour.
 *
 * @param store as it was before the backup: one that was changed since then keeps its status
 */
async function maintain(
  { api, exec }: Tools,
  cluster: Cluster,
  primary: Pod,
  store: ObjectStore,
): Promise<void> {
  const server = archiverOf(cluster)?.serverName;
  if (server === undefined) return;
  await exec(primary, removeOld(Number.parseInt(store.spec.retentionPolicy, 10)));
  const listed: unknown = JSON.parse(await exec(primary, LIST_BACKUPS));
  if (!Value.Check(LISTED, listed))
    throw new Error(`no list of backups: ${JSON.stringify(listed)}`);
  const ends = listed.backups_list
    .filter(({ status }) => status === 'DONE')
    .map(({ end_time_iso: end }) => Date.parse(String(end)))
    .toSorted((a, b) => a - b);
  const [first, last] = [ends[0], ends.at(-1)];
  // Kubernetes cuts off what is less than a second.
  const second = (ms: number | undefined): string | null =>
    ms === undefined ? null : new Date(ms).toISOString().replace(/\.\d+/, '');
  const { namespace, name, resourceVersion } = store.metadata;
  const path = `${OBJECT_STORES}/namespaces/${namespace}/objectstores/${name}/status`;
  await api.mergeVersion(path, resourceVersion, {
    status: {
      serverRecoveryWindow: {
        [server]: {
          firstRecoverabilityPoint: second(first),
          lastSuccessfulBackupTime: second(last),
        },
      },
    },
  });
}

const writeBackup = (api: Api, { metadata }: Backup, status: object): Promise<void> =>
  api.merge(`${CLUSTERS}/namespaces/${metadata.namespace}/backups/${metadata.name}/status`, {
    status,
  });
