/** The objects that the operator double makes for a Cluster, each with the Cluster as its owner. */
import type { Named } from './api.ts';
import {
  applicationOf,
  archiverOf,
  archiveSourceOf,
  currentPrimary,
  isFenced,
  isReplica,
  serverName,
  sourceOf,
  walClaim,
  type Cluster,
  type Storage,
} from './cluster.ts';
import { ARCHIVE, RESTORE } from './archive-scripts.ts';
import {
  COPY,
  DEFAULT_SETTINGS,
  FIRST_RULES,
  INITDB,
  LAST_RULES,
  OWN_SETTINGS,
  RECOVER,
  SERVER,
} from './scripts.ts';

/** The annotation that restarts servers, from the Cluster to its pods. */
const RESTARTED = 'kubectl.kubernetes.io/restartedAt';
/** The source of a pod: another value makes another pod. */
export const TEMPLATE = 'double.howdah.io/template';
/** Changes when a volume of a pod changes: the kubelet then looks at once. */
export const VOLUMES = 'double.howdah.io/volumes';
export const ROLE = 'cnpg.io/instanceRole';
/** Whether a pod began as one of a replica cluster. */
export const FOLLOWS = 'double.howdah.io/follows';
/** Whether the data of a volume is complete: `initializing` or `ready`. */
export const CLAIM_STATUS = 'cnpg.io/pvcStatus';

const USER = 26;
const CONTAINER_SECURITY = {
  allowPrivilegeEscalation: false,
  capabilities: { drop: ['ALL'] },
};
const POD_SECURITY = {
  runAsNonRoot: true,
  runAsUser: USER,
  runAsGroup: USER,
  fsGroup: USER,
  fsGroupChangePolicy: 'OnRootMismatch',
  seccompProfile: { type: 'RuntimeDefault' },
};

/** The secret with the certificate of the role that standbys have: fact 40. */
export const replicationName = ({ metadata }: Cluster): string => `${metadata.name}-replication`;
/** The secret of the authority of clients: docs/cloudnativepg.md, fact 35. */
export const clientAuthorityName = ({ metadata }: Cluster): string => `${metadata.name}-ca`;
/** The secret with the settings of the plugin, for the pods. */
export const storeName = ({ metadata }: Cluster): string => `${metadata.name}-double-store`;
export const settingsName = ({ metadata }: Cluster): string => `${metadata.name}-double`;

export function metadataOf(cluster: Cluster, name: string, more: object = {}) {
  const { metadata, spec } = cluster;
  return {
    name,
    namespace: metadata.namespace,
    labels: { ...spec.inheritedMetadata.labels, 'cnpg.io/cluster': metadata.name, ...more },
    ownerReferences: [
      {
        apiVersion: 'postgresql.cnpg.io/v1',
        kind: 'Cluster',
        name: metadata.name,
        uid: metadata.uid,
        controller: true,
      },
    ],
  };
}

/**
 * The files of its pods, but for secrets.
 *
 * @param names those of its servers
 */
export function settingsData(cluster: Cluster, names: readonly string[]): Record<string, string> {
  const { spec } = cluster;
  const {
    parameters,
    pg_hba: rules = [],
    shared_preload_libraries: libraries = [],
  } = spec.postgresql;
  const settings = Object.entries(parameters).map(
    ([name, value]) => `${name} = '${value.replaceAll("'", "''")}'`,
  );
  // A primary is never its own standby, so all servers have the same list.
  const standbys = names.map((name) => `"${name}"`).join(', ');
  const waits =
    spec.postgresql.synchronous === undefined
      ? ''
      : `ANY ${spec.postgresql.synchronous.number} (${standbys})`;
  const preload = `shared_preload_libraries = '${libraries.join(',')}'`;
  const lines = (...texts: readonly string[]): string => `${texts.join('\n')}\n`;
  return {
    'postgresql.conf': lines(
      ...DEFAULT_SETTINGS,
      ...settings,
      preload,
      `synchronous_standby_names = '${waits}'`,
      ...OWN_SETTINGS,
    ),
    fenced: isFenced(cluster) ? 'yes' : 'no',
    'pg_hba.conf': lines(...FIRST_RULES, ...rules, ...LAST_RULES),
    'init.sql': statementsIn(spec.bootstrap.initdb?.postInitSQL),
    'template.sql': statementsIn(spec.bootstrap.initdb?.postInitTemplateSQL),
    'application.sql': statementsIn(spec.bootstrap.initdb?.postInitApplicationSQL),
    'initdb.sh': INITDB,
    'copy.sh': COPY,
    'recover.sh': RECOVER,
    'restore.sh': RESTORE,
    'archive.sh': ARCHIVE,
    'server.sh': SERVER,
  };
}

/** Statements are arguments of a container, in which $$ is $: docs/cloudnativepg.md, fact 30. */
const statementsIn = (statements: readonly string[] = []): string =>
  statements.map((statement) => `${statement.replaceAll('$$', () => '$')};\n`).join('');

/** The services of a Cluster: docs/cloudnativepg.md, fact 11. */
export function servicesOf(cluster: Cluster): (Named & Readonly<{ spec: object }>)[] {
  const { disabledDefaultServices: disabled, additional } = cluster.spec.managed.services;
  const selectors: Record<string, Record<string, string>> = {
    rw: { [ROLE]: 'primary' },
    ro: { [ROLE]: 'replica' },
    r: {},
  };
  const selector = (type: string) => ({
    'cnpg.io/cluster': cluster.metadata.name,
    ...selectors[type],
  });
  const own = Object.keys(selectors)
    .filter((type) => !disabled.includes(type))
    .map((type) => ({
      metadata: metadataOf(cluster, `${cluster.metadata.name}-${type}`),
      spec: { selector: selector(type), ports: [{ name: 'postgres', port: 5432 }] },
    }));
  const more = additional.map(({ selectorType, serviceTemplate: { metadata, spec } }) => ({
    metadata: metadataOf(cluster, metadata.name),
    spec: { ...Object(spec), selector: selector(selectorType) },
  }));
  return [...own, ...more];
}

/**
 * The volumes of a server: that of its data, and that of its WAL if it has one.
 *
 * @param status of a standby, which clones the primary by itself: `ready`
 */
export function claimsOf(
  cluster: Cluster,
  ordinal: number,
  status: 'initializing' | 'ready',
): object[] {
  const { storage, walStorage } = cluster.spec;
  const name = serverName(cluster, ordinal);
  const dataSource = cluster.spec.bootstrap.recovery?.volumeSnapshots?.storage;
  const wal =
    walStorage === undefined
      ? []
      : [
          {
            metadata: metadataOf(cluster, walClaim(name), { 'cnpg.io/pvcRole': 'PG_WAL' }),
            spec: claimSpec(walStorage),
          },
        ];
  const data = {
    metadata: {
      ...metadataOf(cluster, name, { 'cnpg.io/pvcRole': 'PG_DATA' }),
      annotations: { [CLAIM_STATUS]: status },
    },
    spec: {
      ...claimSpec(storage),
      // Those of standbys begin empty: docs/cloudnativepg.md, fact 25.
      ...(dataSource === undefined || status === 'ready' ? {} : { dataSource }),
    },
  };
  // That of the data last: it is looked for.
  return [...wal, data];
}

const claimSpec = ({ size, storageClass, pvcTemplate }: Storage): object => ({
  // docs/cloudnativepg.md, fact 45.
  accessModes: pvcTemplate?.accessModes ?? ['ReadWriteOnce'],
  resources: { requests: { storage: size } },
  ...(storageClass === undefined ? {} : { storageClassName: storageClass }),
});

/**
 * The job that makes the data of the first server. Each failure makes another pod, as for the jobs
 * of CloudNativePG: docs/cloudnativepg.md, facts 6 and 19.
 */
export function firstJob(cluster: Cluster): Named & Readonly<{ spec: object }> {
  const [role, script] = firstWork(cluster);
  const server = serverName(cluster, 1);
  const metadata = metadataOf(cluster, `${server}-${role}`, { 'cnpg.io/jobRole': role });
  const container = { name: role, command: ['sh', `/config/${script}`] };
  return {
    metadata,
    spec: {
      template: {
        metadata: { labels: metadata.labels },
        spec: { ...podSpec(cluster, server, container), restartPolicy: 'Never' },
      },
    },
  };
}

/** The role of the job, and its script. */
function firstWork({ spec: { bootstrap } }: Cluster): readonly [string, string] {
  if (bootstrap.recovery?.source !== undefined) return ['full-recovery', 'restore.sh'];
  if (bootstrap.recovery !== undefined) return ['snapshot-recovery', 'recover.sh'];
  return bootstrap.pg_basebackup === undefined
    ? ['initdb', 'initdb.sh']
    : ['pgbasebackup', 'copy.sh'];
}

const IS_READY = '/usr/lib/postgresql/*/bin/pg_isready -q -h /tmp';

/** Whether a standby receives WAL, and how far its replay may be behind: fact 33. */
const isStreaming = (maximumLag: string): string =>
  'test "$(/usr/lib/postgresql/*/bin/psql --no-psqlrc --host=/tmp --username=postgres ' +
  `--dbname=postgres --tuples-only --no-align --command="select coalesce((select latest_end_lsn ` +
  `- pg_last_wal_replay_lsn() <= ${Number(maximumLag)} from pg_stat_wal_receiver), false)")" = t`;

/** @param volumes the version of what its volumes hold */
export function serverPod(cluster: Cluster, name: string, volumes: string): object {
  const restarted = cluster.metadata.annotations?.[RESTARTED];
  const readiness = cluster.spec.probes?.readiness;
  const isReady =
    readiness?.type === 'streaming' ? isStreaming(readiness.maximumLag ?? '0') : IS_READY;
  return {
    metadata: {
      ...metadataOf(cluster, name, { 'cnpg.io/podRole': 'instance' }),
      annotations: {
        [TEMPLATE]: templateOf(cluster),
        [VOLUMES]: volumes,
        [FOLLOWS]: isReplica(cluster) ? 'yes' : 'no',
        ...(restarted === undefined ? {} : { [RESTARTED]: restarted }),
      },
    },
    spec: podSpec(cluster, name, {
      name: 'postgres',
      command: ['sh', '/config/server.sh'],
      ports: [{ name: 'postgresql', containerPort: 5432 }],
      readinessProbe: {
        // A fenced pod stays ready: docs/cloudnativepg.md, fact 3.
        exec: { command: ['sh', '-c', `grep -q yes /config/fenced || ${isReady}`] },
        periodSeconds: 1,
        timeoutSeconds: 10,
        failureThreshold: readiness?.failureThreshold ?? 3,
      },
    }),
  };
}

/** The fields that only another pod can have. */
export function templateOf({ metadata, spec }: Cluster): string {
  return JSON.stringify([
    spec.imageName,
    spec.resources,
    spec.postgresql.shared_preload_libraries,
    metadata.annotations?.[RESTARTED],
    // The plugin is a container of the pod: internal/cnpgi/operator/lifecycle.go of it.
    spec.plugins,
    placeOf(spec),
  ]);
}

/** Where its pods run: pkg/specs/pods.go and podspec_diff.go of CloudNativePG. */
const placeOf = ({
  affinity,
  topologySpreadConstraints,
  priorityClassName,
  imagePullSecrets,
}: Cluster['spec']): object => ({
  // CloudNativePG has them in the service account of its pods.
  ...(imagePullSecrets === undefined ? {} : { imagePullSecrets }),
  ...(affinity?.nodeSelector === undefined ? {} : { nodeSelector: affinity.nodeSelector }),
  ...(affinity?.tolerations === undefined ? {} : { tolerations: affinity.tolerations }),
  ...(topologySpreadConstraints === undefined ? {} : { topologySpreadConstraints }),
  ...(priorityClassName === undefined ? {} : { priorityClassName }),
});

/** A part of a pod whose WAL has a volume of its own. */
const walOf = ({ walStorage }: Cluster['spec'], part: object): object[] =>
  walStorage === undefined ? [] : [part];

const conninfoOf = (parameters: Readonly<Record<string, string>>): string =>
  Object.entries(parameters)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');

const password = (name: string, secretName: string) => ({
  name,
  valueFrom: { secretKeyRef: { name: secretName, key: 'password' } },
});
const secret = (name: string, secretName: string) => ({
  name,
  secret: { secretName, defaultMode: 0o440 },
});

/** @param server the name of the server, whose volume it has */
function podSpec(cluster: Cluster, server: string, container: object): object {
  const { spec } = cluster;
  const { initdb } = spec.bootstrap;
  const application = applicationOf(cluster);
  const source = sourceOf(cluster);
  const archive = archiveSourceOf(cluster);
  const stored = archiverOf(cluster) !== null || archive !== null;
  const hasSourceKey = source?.hasPassword === false;
  const environment = {
    SERVER: server,
    // No file of a volume says it, since the kubelet may give a new pod an old one.
    STARTS_AS: server === currentPrimary(cluster) ? 'primary' : 'standby',
    CLUSTER: cluster.metadata.name,
    OWNER: application.owner,
    DATABASE: application.database,
    ENCODING: initdb?.encoding,
    COLLATE: initdb?.localeCollate,
    CTYPE: initdb?.localeCType,
    ARCHIVES: archiverOf(cluster) === null ? 'no' : 'yes',
    ARCHIVE_SOURCE: archive?.serverName,
    TARGET_TIME: archive?.targetTime,
    // docs/cloudnativepg.md, fact 47.
    SKIP_EMPTY: cluster.metadata.annotations?.['cnpg.io/skipEmptyWalArchiveCheck'],
    SOURCE: source === null ? undefined : conninfoOf(source.connectionParameters),
    REPLICA: isReplica(cluster) ? 'yes' : 'no',
  };
  return {
    hostname: server,
    ...placeOf(spec),
    securityContext: POD_SECURITY,
    terminationGracePeriodSeconds: 30,
    enableServiceLinks: false,
    automountServiceAccountToken: false,
    containers: [
      {
        ...container,
        image: spec.imageName,
        imagePullPolicy: 'IfNotPresent',
        resources: spec.resources,
        securityContext: CONTAINER_SECURITY,
        env: [
          ...Object.entries(environment).map(([name, value]) => ({ name, value })),
          ...(source?.hasPassword === true
            ? [password('SOURCE_PASSWORD', source.secret.name)]
            : []),
        ],
        volumeMounts: [
          { name: 'data', mountPath: '/var/lib/postgresql/data' },
          ...walOf(spec, { name: 'wal', mountPath: '/var/lib/postgresql/wal' }),
          { name: 'temporary', mountPath: '/tmp' },
          { name: 'memory', mountPath: '/dev/shm' },
          { name: 'config', mountPath: '/config' },
          { name: 'password', mountPath: '/password' },
          { name: 'tls', mountPath: '/tls' },
          { name: 'authority', mountPath: '/authority' },
          { name: 'clients', mountPath: '/clients' },
          { name: 'replication', mountPath: '/replication' },
          ...(hasSourceKey ? [{ name: 'source-key', mountPath: '/source-key' }] : []),
          ...(source === null ? [] : [{ name: 'source', mountPath: '/source' }]),
          ...(stored ? [{ name: 'store', mountPath: '/store' }] : []),
        ],
      },
    ],
    volumes: [
      { name: 'data', persistentVolumeClaim: { claimName: server } },
      ...walOf(spec, { name: 'wal', persistentVolumeClaim: { claimName: walClaim(server) } }),
      { name: 'temporary', emptyDir: {} },
      { name: 'memory', emptyDir: { medium: 'Memory' } },
      { name: 'config', configMap: { name: settingsName(cluster) } },
      secret('password', application.secret.name),
      secret('tls', spec.certificates.serverTLSSecret),
      secret('authority', spec.certificates.serverCASecret),
      secret('clients', clientAuthorityName(cluster)),
      secret('replication', replicationName(cluster)),
      ...(hasSourceKey ? [secret('source-key', source.secret.name)] : []),
      ...(source === null ? [] : [secret('source', source.sslRootCert.name)]),
      ...(stored ? [secret('store', storeName(cluster))] : []),
    ],
  };
}
