/**
 * The Cluster of a service. Fields: https://cloudnative-pg.io/docs/1.30/cloudnative-pg.v1
 *
 * Whatever is left out here keeps the default of the operator, which may change with its version:
 * what matters is set.
 */
import {
  ADMIN_ROLE,
  DATABASE_NAME,
  type AddonExtension,
  type Placement,
  type Size,
} from '@howdah/contract';
import { ownExtensionStatements } from '../../../domain/postgres/own-extension.ts';
import { COPY_ROLE } from '../../moves.ts';
import type { Endpoint } from '../../spec.ts';
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import {
  AUTHORITY_SECRET,
  certificateSecret,
  clusterName,
  copySecret,
  endpointService,
  LABELS,
  MANAGED,
  namespaceOf,
  passwordSecret,
  replicationSecret,
  readerSecret,
  poolerName,
} from '../names.ts';
import { CONTROL_SQL, controlRole, networkRules, trafficPolicy } from '../network/rules.ts';
import { archiverOf, pointInTimeOf, backupsOf, recoveryOf } from '../backup/manifests.ts';
import { walVolumeGb } from './parameters.ts';
import { nodesOf, priorityOf, pullsOf, spreadOf, type RegionSettings } from '../region/settings.ts';
import {
  MAX_STATEMENTS,
  READER_ROLE,
  TEMP_FILE_LIMIT,
  REVOKE_WRITERS,
} from '../../statements/session.ts';
import { lookupStatements, POOLER_ROLE, POOLER_SCHEMA } from '../../pooler/lookup.ts';

/** The annotation by which a Cluster is stopped, with its volumes kept. */
export const HIBERNATION = 'cnpg.io/hibernation';
/** The annotation that names the fenced servers: PostgreSQL is stopped in them, their pods stay. */
export const FENCED = 'cnpg.io/fencedInstances';
/** All of them, as JSON: the webhook accepts anything (docs/cloudnativepg.md, fact 3). */
export const FENCED_ALL = '["*"]';
/** The annotation that restarts all servers when it changes. */
export const RESTARTED = 'kubectl.kubernetes.io/restartedAt';
/** The desired state when the Cluster was last written, as JSON: see `desired-state.ts`. */
export const DESIRED = 'howdah.io/desired';

/** All that an archive has, in place of a moment. */
export const LATEST = 'latest';

/** The servers of a Cluster, be it that of a service or of a read replica set. */
export type ServersInput = Readonly<{
  id: string;
  projectId: string;
  region: Pick<RegionSettings, 'code' | 'storageClass'>;
  image: string;
  placement: Placement;
  /** Whether its images are pulled by the credentials of the region. */
  pulls: boolean;
  size: Size;
  /** Whether the CPU of its size is a limit too. */
  bound: boolean;
  storageGb: number;
  /** The storage class of its volumes for WAL; null: WAL is with the data. */
  walClass: string | null;
  running: boolean;
  /** The port at which all nodes listen for it; null: it is behind the TLS gateway. */
  nodePort: number | null;
  parameters: Readonly<Record<string, string>>;
  preload: readonly string[];
  /** The networks whose clients may connect; null: all. */
  networks: readonly string[] | null;
  /** Whether a pooler connects, whose clients have been examined. */
  isPooled: boolean;
  /** Another value restarts all servers. */
  restartMark: string;
  /** The desired state as JSON, which the next step is compared with. */
  desired: string;
}>;

export type ClusterInput = ServersInput &
  Readonly<{
    /** Standbys, and how many of them have every acknowledged write. */
    replicas: number;
    sync: number;
    /** SQL that a superuser runs once, in the database postgres, if nothing is copied. */
    statements: readonly string[];
    /** The extensions that its database begins with, if nothing is copied. */
    extensions: readonly AddonExtension[];
    /** The service whose data is copied; null: none is, or it was copied. */
    parent: string | null;
    /** The service in another region that it follows, as its copy; null: none. */
    source: Endpoint | null;
    /** The snapshot that its volume is made of; null: none. */
    snapshot: string | null;
    /** The class for snapshots of its volumes; null: none are taken. */
    snapshotClass: string | null;
    /** Whether its WAL is archived in the object store of the region. */
    archives: boolean;
    /** The moment whose data it gets, of its parent's archive; null: none. */
    targetTime: string | null;
    /** Whether it goes on in an archive that has files. */
    keepsArchive: boolean;
  }>;

/**
 * Another timeline begins in the archive of a service that was restored. Otherwise CloudNativePG
 * archives only where there is nothing.
 */
const ARCHIVE_GOES_ON = { 'cnpg.io/skipEmptyWalArchiveCheck': 'enabled' } as const;

/**
 * A former primary connects to this database of the new one, and follows it only then; users may
 * not connect to it (docs/cloudnativepg.md, fact 28). CloudNativePG makes a role that is missing.
 */
const STANDBY_SQL: readonly string[] = [
  'create role streaming_replica login replication',
  'grant connect on database postgres to streaming_replica',
];

export function clusterManifest(input: ClusterInput): Manifest {
  const { id, replicas } = input;
  const name = clusterName(id);
  const head = headOf(input, name);
  const { annotations } = head.metadata;
  return {
    ...head,
    ...(input.keepsArchive
      ? { metadata: { ...head.metadata, annotations: { ...annotations, ...ARCHIVE_GOES_ON } } }
      : {}),
    spec: {
      ...serversOf(input, name),
      instances: 1 + replicas,
      postgresql: {
        ...postgresOf(input),
        // Acknowledged writes are on `sync` standbys, or are not acknowledged.
        ...(input.sync === 0
          ? {}
          : {
              synchronous: {
                method: 'any',
                number: input.sync,
                dataDurability: 'required',
                failoverQuorum: true,
              },
            }),
      },
      ...bootstrapOf(input),
      ...(input.snapshotClass === null || input.source !== null
        ? {}
        : { backup: backupsOf(input.snapshotClass) }),
      ...(input.archives ? { plugins: [archiverOf(id)] } : {}),
      // With one server it would keep the node from being drained.
      enablePDB: replicas > 0,
      managed: {
        // A copy has those of the service, and cannot write others.
        ...(input.source === null
          ? { roles: [readerRole(id), controlRole(id), poolerRole(id)] }
          : {}),
        services: servicesOf(input, name, 'rw'),
      },
      primaryUpdateMethod: 'switchover',
      probes: { startup: { periodSeconds: 1 }, readiness: { periodSeconds: 1 } },
    },
  };
}

/** The labels of a Cluster, which its objects inherit. */
const labelsOf = ({ id, projectId, region }: ServersInput) => ({
  [LABELS.service]: id,
  [LABELS.project]: projectId,
  [LABELS.region]: region.code,
});

/** All of a Cluster but its fields. @param more labels that its objects do not inherit */
export function headOf(
  input: ServersInput,
  name: string,
  more: Readonly<Record<string, string>> = {},
): Manifest {
  return {
    apiVersion: KINDS.cluster.apiVersion,
    kind: KINDS.cluster.kind,
    metadata: {
      name,
      namespace: namespaceOf(input.projectId),
      labels: { ...MANAGED, ...labelsOf(input), ...more },
      annotations: {
        [HIBERNATION]: input.running ? 'off' : 'on',
        [RESTARTED]: input.restartMark,
        [DESIRED]: input.desired,
      },
    },
  };
}

/**
 * Volumes for one pod at a time. With `ReadWriteOnce` it would be one node: a pod whose removal is
 * forced is gone before its processes are, and the next one would have a second server write the
 * same files (docs/decisions/0076-one-pod-a-volume.md).
 */
export const volumesOf = ({ storageClass }: Pick<RegionSettings, 'storageClass'>): object => ({
  ...(storageClass === null ? {} : { storageClass }),
  pvcTemplate: { accessModes: ['ReadWriteOncePod'] },
});

/** The fields that the servers of services and of sets have in common. */
export function serversOf(input: ServersInput, name: string): object {
  const { region } = input;
  return {
    imageName: input.image,
    // Not the label by which CloudNativePG finds volumes (docs/cloudnativepg.md, fact 31).
    inheritedMetadata: { labels: labelsOf(input) },
    storage: {
      size: `${input.storageGb}G`,
      resizeInUseVolumes: true,
      ...volumesOf(region),
    },
    ...(input.walClass === null
      ? {}
      : {
          walStorage: {
            size: `${walVolumeGb(input.storageGb)}G`,
            resizeInUseVolumes: true,
            ...volumesOf({ storageClass: input.walClass }),
          },
        }),
    resources: resourcesOf(input),
    enableSuperuserAccess: false,
    // Signed by us: the operator would need the key of the authority in this namespace, where the
    // service account of each server may read it.
    certificates: { serverCASecret: AUTHORITY_SECRET, serverTLSSecret: certificateSecret(name) },
    affinity: {
      enablePodAntiAffinity: true,
      podAntiAffinityType: 'preferred',
      ...nodesOf(input.placement),
    },
    ...spreadOf(input.placement, name),
    ...priorityOf(input.placement),
    ...pullsOf(region.code, input.pulls),
    primaryUpdateStrategy: 'unsupervised',
    // The operator's defaults are for sites where minutes do not matter.
    startDelay: 3600,
    stopDelay: 60,
    smartShutdownTimeout: 2,
    switchoverDelay: 60,
    failoverDelay: 0,
  };
}

/** The settings of PostgreSQL that both have. */
export const postgresOf = ({ parameters, preload, networks, isPooled }: ServersInput): object => ({
  parameters,
  shared_preload_libraries: preload,
  pg_hba: networkRules(networks, isPooled),
});

/**
 * A size is a guarantee: its request is what a node must have. Idle processors may be used, unless
 * a bound is asked for; memory that is used cannot be taken back, so that it is a limit as well.
 */
function resourcesOf({ size, bound }: Pick<ServersInput, 'size' | 'bound'>): object {
  if (size === 'shared')
    return { requests: { cpu: '50m', memory: '256Mi' }, limits: { memory: '1Gi' } };
  const amount = { cpu: `${size.cpuMillis}m`, memory: `${size.memoryGbs}Gi` };
  return { requests: amount, limits: bound ? amount : { memory: amount.memory } };
}

function bootstrapOf(input: ClusterInput): object {
  const { id, statements, extensions, parent, source, snapshot, targetTime } = input;
  const owned = {
    database: DATABASE_NAME,
    owner: ADMIN_ROLE,
    secret: { name: passwordSecret(id) },
  };
  if (source !== null)
    return {
      bootstrap: { pg_basebackup: { source: MOVED, ...owned } },
      externalClusters: [serverToFollow(id, source)],
      // The promotion leaves it out: it is final.
      replica: { enabled: true, source: MOVED },
    };
  if (snapshot !== null) return { bootstrap: { recovery: { ...recoveryOf(snapshot), ...owned } } };
  if (parent !== null && targetTime !== null) {
    const moment = targetTime === LATEST ? null : targetTime;
    const { recovery, externalClusters } = pointInTimeOf(id, parent, moment);
    return { bootstrap: { recovery: { ...recovery, ...owned } }, externalClusters };
  }
  if (parent !== null)
    return {
      bootstrap: { pg_basebackup: { source: clusterName(parent), ...owned } },
      externalClusters: [serverToCopy(parent)],
    };
  return {
    bootstrap: {
      initdb: {
        ...owned,
        dataChecksums: true,
        encoding: 'UTF8',
        localeCollate: 'C.UTF-8',
        localeCType: 'C.UTF-8',
        postInitSQL: [...statements, ...STANDBY_SQL, ...READER_SQL, ...CONTROL_SQL, ...POOLER_SQL],
        postInitTemplateSQL: [...READER_TEMPLATE_SQL, ...POOLER_TEMPLATE_SQL],
        postInitApplicationSQL: [
          ...extensions.flatMap(creatingExtension),
          ...READER_DATABASE_SQL,
          ...POOLER_DATABASE_SQL,
        ],
      },
    },
  };
}

/** Each statement is a transaction of its own, and `$$` would become `$` in it (fact 30). */
const creatingExtension = (name: AddonExtension): string[] => [
  `create extension ${name} schema public`,
  `do $own$ begin
     perform set_config('allow_system_table_mods', 'on', true);
     ${ownExtensionStatements(name).join('; ')};
   end $own$`,
];

/**
 * A standby that connects to the address of a pod that is just gone would wait for two minutes,
 * until TCP gives up: PostgreSQL has no timeout there. CloudNativePG sets the same for its own.
 */
const SILENCE_TIMEOUT = { tcp_user_timeout: '5000' };

/** The primary of a service in the same namespace, as the role of its standbys reaches it. */
export function serverToCopy(parent: string): object {
  const name = clusterName(parent);
  const key = (key: string) => ({ name: replicationSecret(parent), key });
  return {
    name,
    connectionParameters: {
      host: `${name}-rw`,
      user: 'streaming_replica',
      sslmode: 'verify-full',
      ...SILENCE_TIMEOUT,
    },
    sslKey: key('tls.key'),
    sslCert: key('tls.crt'),
    sslRootCert: { name: AUTHORITY_SECRET, key: 'ca.crt' },
  };
}

/** The name of the service in another region that a copy follows. */
const MOVED = 'moved';

function serverToFollow(id: string, { host, port }: Endpoint): object {
  return {
    name: MOVED,
    connectionParameters: {
      host,
      port: String(port),
      user: COPY_ROLE,
      sslmode: 'verify-full',
      ...SILENCE_TIMEOUT,
    },
    password: { name: copySecret(id), key: 'password' },
    sslRootCert: { name: AUTHORITY_SECRET, key: 'ca.crt' },
  };
}

/** The fields of a Service at the endpoint of servers or of a pooler. */
export function listeningAt({
  targetPort,
  nodePort,
  networks,
  selector,
}: Pick<ServersInput, 'nodePort' | 'networks'> &
  Readonly<{ targetPort: number; selector?: Readonly<Record<string, string>> }>): object {
  const port = { name: 'postgres', port: 5432, targetPort };
  const selected = selector === undefined ? {} : { selector };
  if (nodePort === null) return { type: 'ClusterIP', ...selected, ports: [port] };
  return {
    type: 'NodePort',
    externalTrafficPolicy: trafficPolicy(networks),
    ...selected,
    ports: [{ ...port, nodePort }],
  };
}

/** The Services of a Cluster. @param selectorType the servers that are at its endpoint */
export function servicesOf(
  { nodePort, networks }: ServersInput,
  name: string,
  selectorType: 'rw' | 'r',
): object {
  const spec = listeningAt({ targetPort: 5432, nodePort, networks });
  const serviceTemplate = { metadata: { name: endpointService(name) }, spec };
  return {
    disabledDefaultServices: ['ro'],
    additional: [{ selectorType, updateStrategy: 'patch', serviceTemplate }],
  };
}

// The role of statements that users send through the API. CloudNativePG keeps it as the Cluster has
// it (docs/cloudnativepg.md, fact 23). The properties that a managed role cannot have are made with
// the data.

/** Two more than statements: one ends another session from outside, one reads figures. */
const SESSIONS = MAX_STATEMENTS + 2;

/** The role as a Cluster has it. */
function readerRole(id: string): object {
  return {
    name: READER_ROLE,
    ensure: 'present',
    login: true,
    bypassrls: true,
    connectionLimit: SESSIONS,
    inRoles: ['pg_read_all_data'],
    passwordSecret: { name: readerSecret(id) },
  };
}

/** SQL that a superuser runs once in a new server, before the database of users is made. */
const READER_SQL: readonly string[] = [
  `create role ${READER_ROLE}`,
  `alter role ${READER_ROLE} set temp_file_limit = '${TEMP_FILE_LIMIT}'`,
];
/** The same in the database that all others are copies of. */
const READER_TEMPLATE_SQL: readonly string[] = [REVOKE_WRITERS];
/** The same in the database of users, which its owner may close to everybody else. */
const READER_DATABASE_SQL: readonly string[] = [
  `grant connect on database ${DATABASE_NAME} to ${READER_ROLE}`,
];

// The role of a pooler in its server. CloudNativePG keeps it as the Cluster has it
// (docs/cloudnativepg.md, fact 23). The function that it calls is made with the data: it shows
// verifiers, so it belongs to the superuser.

/** The role as a Cluster has it: it may log in, and nothing else. */
function poolerRole(id: string): object {
  return {
    name: POOLER_ROLE,
    ensure: 'present',
    login: true,
    passwordSecret: { name: poolerName(clusterName(id)) },
  };
}

/** SQL that a superuser runs once in a new server: no user can make a role of this name then. */
const POOLER_SQL: readonly string[] = [`create role ${POOLER_ROLE}`];
/** The same in the database that all others are copies of: users may make theirs again. */
export const POOLER_TEMPLATE_SQL: readonly string[] = [
  `do $body$
begin
  -- The name of the schema is reserved.
  perform set_config('allow_system_table_mods', 'on', true);
  create schema ${POOLER_SCHEMA};
  ${lookupStatements().join(';\n  ')};
end $body$`,
];
/** The same in the database of users, which its owner may close to everybody else. */
const POOLER_DATABASE_SQL: readonly string[] = [
  `grant connect on database ${DATABASE_NAME} to ${POOLER_ROLE}`,
];
