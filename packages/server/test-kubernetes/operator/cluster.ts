/** A Cluster and what belongs to it, as the operator double reads them. */
import { Type, type Static } from 'typebox';

const TEXTS = Type.Record(Type.String(), Type.String());
export const METADATA = Type.Object({
  name: Type.String(),
  namespace: Type.String(),
  uid: Type.String(),
  resourceVersion: Type.String(),
  deletionTimestamp: Type.Optional(Type.String()),
  labels: Type.Optional(TEXTS),
  annotations: Type.Optional(TEXTS),
});
const CONDITION = Type.Object({
  type: Type.String(),
  status: Type.String(),
  reason: Type.Optional(Type.String()),
});
const SERVICE = Type.Object({
  selectorType: Type.String(),
  serviceTemplate: Type.Object({
    metadata: Type.Object({ name: Type.String() }),
    spec: Type.Unknown(),
  }),
});

/** The database of the users of a Cluster, the role that owns it, and the secret of that. */
const APPLICATION = {
  database: Type.String(),
  owner: Type.String(),
  secret: Type.Object({ name: Type.String() }),
};
const KEY = Type.Object({ name: Type.String() });
const DATA_SOURCE = Type.Object({
  apiGroup: Type.String(),
  kind: Type.String(),
  name: Type.String(),
});

const STORAGE = Type.Object({
  size: Type.String(),
  storageClass: Type.Optional(Type.String()),
  pvcTemplate: Type.Optional(Type.Object({ accessModes: Type.Array(Type.String()) })),
});
export type Storage = Static<typeof STORAGE>;

const PLUGIN = Type.Object({
  name: Type.Literal('barman-cloud.cloudnative-pg.io'),
  parameters: Type.Object({ barmanObjectName: Type.String(), serverName: Type.String() }),
});

const MANAGED_ROLE = Type.Object({
  name: Type.String({ pattern: '^[a-z_]+$' }),
  ensure: Type.Literal('present'),
  login: Type.Optional(Type.Boolean()),
  bypassrls: Type.Optional(Type.Boolean()),
  connectionLimit: Type.Optional(Type.Number()),
  inRoles: Type.Optional(Type.Array(Type.String())),
  passwordSecret: KEY,
});
export type ManagedRole = Static<typeof MANAGED_ROLE>;

export const CLUSTER = Type.Object({
  metadata: METADATA,
  spec: Type.Object({
    instances: Type.Number(),
    imageName: Type.String(),
    inheritedMetadata: Type.Object({ labels: TEXTS }),
    storage: STORAGE,
    walStorage: Type.Optional(STORAGE),
    affinity: Type.Optional(
      Type.Object({
        nodeSelector: Type.Optional(TEXTS),
        tolerations: Type.Optional(Type.Array(Type.Unknown())),
      }),
    ),
    topologySpreadConstraints: Type.Optional(Type.Array(Type.Unknown())),
    priorityClassName: Type.Optional(Type.String()),
    imagePullSecrets: Type.Optional(Type.Array(KEY)),
    resources: Type.Unknown(),
    postgresql: Type.Object({
      parameters: TEXTS,
      shared_preload_libraries: Type.Optional(Type.Array(Type.String())),
      pg_hba: Type.Optional(Type.Array(Type.String())),
      synchronous: Type.Optional(Type.Object({ number: Type.Number() })),
    }),
    bootstrap: Type.Object({
      initdb: Type.Optional(
        Type.Object({
          ...APPLICATION,
          encoding: Type.String(),
          localeCollate: Type.String(),
          localeCType: Type.String(),
          postInitSQL: Type.Array(Type.String()),
          postInitTemplateSQL: Type.Optional(Type.Array(Type.String())),
          postInitApplicationSQL: Type.Optional(Type.Array(Type.String())),
        }),
      ),
      pg_basebackup: Type.Optional(Type.Object({ ...APPLICATION, source: Type.String() })),
      recovery: Type.Optional(
        Type.Object({
          ...APPLICATION,
          volumeSnapshots: Type.Optional(Type.Object({ storage: DATA_SOURCE })),
          source: Type.Optional(Type.String()),
          recoveryTarget: Type.Optional(Type.Object({ targetTime: Type.Optional(Type.String()) })),
        }),
      ),
    }),
    replica: Type.Optional(Type.Object({ enabled: Type.Boolean(), source: Type.String() })),
    probes: Type.Optional(
      Type.Object({
        readiness: Type.Optional(
          Type.Object({
            type: Type.Optional(Type.String()),
            maximumLag: Type.Optional(Type.String()),
            failureThreshold: Type.Optional(Type.Number()),
          }),
        ),
      }),
    ),
    backup: Type.Optional(
      Type.Object({ volumeSnapshot: Type.Object({ className: Type.String() }) }),
    ),
    externalClusters: Type.Optional(
      Type.Array(
        Type.Object({
          name: Type.String(),
          connectionParameters: Type.Optional(TEXTS),
          sslKey: Type.Optional(KEY),
          sslCert: Type.Optional(KEY),
          password: Type.Optional(KEY),
          sslRootCert: Type.Optional(KEY),
          plugin: Type.Optional(PLUGIN),
        }),
      ),
    ),
    plugins: Type.Optional(Type.Array(PLUGIN)),
    certificates: Type.Object({ serverCASecret: Type.String(), serverTLSSecret: Type.String() }),
    managed: Type.Object({
      roles: Type.Optional(Type.Array(MANAGED_ROLE)),
      services: Type.Object({
        disabledDefaultServices: Type.Array(Type.String()),
        additional: Type.Array(SERVICE),
      }),
    }),
  }),
  status: Type.Optional(
    Type.Object({
      phase: Type.Optional(Type.String()),
      readyInstances: Type.Optional(Type.Number()),
      currentPrimary: Type.Optional(Type.String()),
      targetPrimary: Type.Optional(Type.String()),
      conditions: Type.Optional(Type.Array(CONDITION)),
      managedRolesStatus: Type.Optional(
        Type.Object({
          passwordStatus: Type.Record(
            Type.String(),
            Type.Object({ resourceVersion: Type.String() }),
          ),
        }),
      ),
    }),
  ),
});
export type Cluster = Static<typeof CLUSTER>;

export function applicationOf({ metadata, spec }: Cluster) {
  const { initdb, pg_basebackup: copy, recovery } = spec.bootstrap;
  const application = initdb ?? copy ?? recovery;
  if (application === undefined) throw new Error(`${metadata.name} has no bootstrap`);
  return application;
}

/** The server that the data of a Cluster is copied from; null: it begins empty. */
export function sourceOf({ metadata, spec }: Cluster) {
  const name = spec.bootstrap.pg_basebackup?.source;
  if (name === undefined) return null;
  const source = spec.externalClusters?.find((one) => one.name === name);
  const { connectionParameters, password, sslKey, sslRootCert } = source ?? {};
  const secret = password ?? sslKey;
  if (connectionParameters === undefined || secret === undefined || sslRootCert === undefined)
    throw new Error(`${metadata.name} has no external cluster ${name}`);
  return { connectionParameters, secret, hasPassword: password !== undefined, sslRootCert };
}

/** The archive that the data of a Cluster is from; null: it is from none. */
export function archiveSourceOf({ metadata, spec }: Cluster) {
  const { source: name, recoveryTarget } = spec.bootstrap.recovery ?? {};
  if (name === undefined) return null;
  const plugin = spec.externalClusters?.find((one) => one.name === name)?.plugin;
  if (plugin === undefined) throw new Error(`${metadata.name} has no external cluster ${name}`);
  return { ...plugin.parameters, targetTime: recoveryTarget?.targetTime };
}

/** Whether all servers of a Cluster are standbys: docs/cloudnativepg.md, fact 32. */
export const isReplica = ({ spec }: Cluster): boolean => spec.replica?.enabled === true;

/** The parameters of the plugin that archives its WAL; null: it is not archived. */
export const archiverOf = ({ spec }: Cluster) => spec.plugins?.[0]?.parameters ?? null;

export type Condition = Static<typeof CONDITION>;

const TERMINATED = Type.Optional(Type.Object({ exitCode: Type.Number() }));
export const POD = Type.Object({
  metadata: METADATA,
  status: Type.Optional(
    Type.Object({
      phase: Type.Optional(Type.String()),
      conditions: Type.Optional(Type.Array(CONDITION)),
      containerStatuses: Type.Optional(
        Type.Array(
          Type.Object({
            state: Type.Optional(
              Type.Object({ running: Type.Optional(Type.Unknown()), terminated: TERMINATED }),
            ),
            lastState: Type.Optional(Type.Object({ terminated: TERMINATED })),
          }),
        ),
      ),
    }),
  ),
});
export type Pod = Static<typeof POD>;

export const CLAIM = Type.Object({
  metadata: METADATA,
  spec: Type.Object({
    resources: Type.Object({ requests: Type.Object({ storage: Type.String() }) }),
  }),
});
export type Claim = Static<typeof CLAIM>;

/** The job that makes the data of a new Cluster. */
export const JOB = Type.Object({
  metadata: METADATA,
  status: Type.Optional(Type.Object({ succeeded: Type.Optional(Type.Number()) })),
});
export type Job = Static<typeof JOB>;

/** A secret: only whether it has changed. */
export const SECRET = Type.Object({ metadata: METADATA });

export const CLUSTERS = '/apis/postgresql.cnpg.io/v1';

/** The path of an object in a namespace. @param name none: the collection */
export const pathIn = (namespace: string, plural: string, name?: string): string =>
  `/api/v1/namespaces/${namespace}/${plural}${name === undefined ? '' : `/${name}`}`;

export const JOBS = '/apis/batch/v1';

export const clusterPath = ({ metadata: { namespace, name } }: Cluster): string =>
  `${CLUSTERS}/namespaces/${namespace}/clusters/${name}`;

/** The name of the pod and of the volume of a server. @param ordinal from 1 */
export const serverName = ({ metadata }: Cluster, ordinal: number): string =>
  `${metadata.name}-${ordinal}`;

/** The volume for WAL of a server: specs.GetPVCName of CloudNativePG. */
export const walClaim = (server: string): string => `${server}-wal`;

/** The number of the server that a pod or a volume belongs to; null: it is that of a job. */
export function ordinalOf({ metadata }: Pod | Claim): number | null {
  const ordinal = /-(\d+)$/.exec(metadata.name)?.[1];
  return ordinal === undefined ? null : Number(ordinal);
}

/** The primary, as the status has it: of a new Cluster, its first server. */
export const currentPrimary = (cluster: Cluster): string =>
  cluster.status?.currentPrimary ?? serverName(cluster, 1);
/** The server that must become the primary, or {@link PENDING}. */
export const targetPrimary = (cluster: Cluster): string =>
  cluster.status?.targetPrimary ?? currentPrimary(cluster);
/** The target while the primary is dead and none was chosen: docs/cloudnativepg.md, fact 17. */
export const PENDING = 'pending';

/** All servers are fenced: docs/cloudnativepg.md, fact 3. */
export const isFenced = ({ metadata }: Cluster): boolean =>
  metadata.annotations?.['cnpg.io/fencedInstances'] === '["*"]';

type Leaving = Readonly<{ metadata: Pick<Static<typeof METADATA>, 'deletionTimestamp'> }>;
export const isLeaving = ({ metadata }: Leaving): boolean =>
  metadata.deletionTimestamp !== undefined;

/** Whether its container runs. A probe may fail on a slow machine. */
export const isAlive = (pod: Pod): boolean =>
  !isLeaving(pod) &&
  (pod.status?.containerStatuses ?? []).some(({ state }) => state?.running !== undefined);

/** Whether its container has ended for good, as that of an evicted pod: fact 43. */
export const isOver = ({ status }: Pod): boolean =>
  status?.phase === 'Failed' || status?.phase === 'Succeeded';

/** The exit status of a server without room for WAL: docs/cloudnativepg.md, fact 42. */
export const OUT_OF_SPACE = 4;
export const isOutOfSpace = (pod: Pod): boolean =>
  !isAlive(pod) &&
  (pod.status?.containerStatuses ?? []).some(
    ({ state, lastState }) =>
      (state?.terminated ?? lastState?.terminated)?.exitCode === OUT_OF_SPACE,
  );

export const isReady = ({ status }: Pod): boolean =>
  (status?.conditions ?? []).some(({ type, status: is }) => type === 'Ready' && is === 'True');
