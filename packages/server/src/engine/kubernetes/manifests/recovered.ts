/**
 * The Cluster that recovers the archive of a service, so that the copy can be examined. It runs
 * until the operator calls it healthy, then its volume is the copy. No client can log in, no code
 * of the tenant runs in it, and it archives nothing.
 */
import { ADMIN_ROLE, DATABASE_NAME, type Placement } from '@howdah/contract';
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import { HIBERNATION, volumesOf } from './cluster.ts';
import {
  AUTHORITY_SECRET,
  certificateSecret,
  clusterName,
  LABELS,
  MANAGED,
  namespaceOf,
  passwordSecret,
  recoveredName,
  VERIFICATION_LABEL,
} from './names.ts';
import { pointInTimeOf } from './object-store.ts';
import { nodesOf, priorityOf, pullsOf } from './placement.ts';

/** Room for WAL that the service has removed meanwhile: its volume may be full. */
const WAL_GB = 2;

export type RecoveredInput = Readonly<{
  id: string;
  projectId: string;
  region: string;
  /** The Cluster of the service, with which it goes. */
  clusterUid: string;
  image: string;
  major: number;
  storageGb: number;
  storageClass: string | null;
  placement: Placement;
  /** Whether its image is pulled by the credentials of the region. */
  pulls: boolean;
  /** Settings that a recovery needs at least as large as the server had them. */
  limits: Readonly<Record<string, string>>;
  /** The moment up to which the archive is recovered, as PostgreSQL takes it. */
  targetTime: string;
}>;

export function recoveredManifest(input: RecoveredInput): Manifest {
  const { id, projectId, region, clusterUid } = input;
  const { apiVersion, kind } = KINDS.cluster;
  const name = clusterName(id);
  // Not that of the service: it is none of its servers.
  const labels = {
    [LABELS.project]: projectId,
    [LABELS.region]: region,
    [VERIFICATION_LABEL]: name,
  };
  return {
    apiVersion,
    kind,
    metadata: {
      name: recoveredName(id),
      namespace: namespaceOf(projectId),
      labels: { ...MANAGED, ...labels },
      annotations: { [HIBERNATION]: 'off' },
      ownerReferences: [{ apiVersion, kind, name, uid: clusterUid }],
    },
    spec: { inheritedMetadata: { labels }, ...specOf(input, name) },
  };
}

function specOf(input: RecoveredInput, name: string): object {
  const { id, image, major, storageGb, limits, targetTime } = input;
  const { recovery, externalClusters } = pointInTimeOf(id, id, targetTime);
  return {
    instances: 1,
    imageName: image,
    storage: {
      size: `${storageGb + WAL_GB}G`,
      ...volumesOf(input),
    },
    affinity: nodesOf(input.placement),
    ...priorityOf(input.placement),
    ...pullsOf(input.region, input.pulls),
    // It takes what services leave.
    resources: { requests: { cpu: '50m', memory: '256Mi' }, limits: { memory: '1Gi' } },
    enableSuperuserAccess: false,
    certificates: { serverCASecret: AUTHORITY_SECRET, serverTLSSecret: certificateSecret(name) },
    postgresql: {
      parameters: {
        ...limits,
        shared_buffers: '128MB',
        max_wal_size: '96MB',
        wal_keep_size: '0',
        autovacuum: 'off',
        max_logical_replication_workers: '0',
        ...(major >= 17 ? { event_triggers: 'off' } : {}),
      },
      // Libraries of extensions have workers, which would work on the data.
      shared_preload_libraries: [],
      // After those of CloudNativePG itself, and before its last one, which lets all roles in.
      pg_hba: ['host all all all reject'],
    },
    bootstrap: {
      recovery: {
        ...recovery,
        database: DATABASE_NAME,
        owner: ADMIN_ROLE,
        secret: { name: passwordSecret(id) },
      },
    },
    externalClusters,
    enablePDB: false,
    managed: { services: { disabledDefaultServices: ['ro', 'r'], additional: [] } },
    startDelay: 86_400,
    stopDelay: 60,
    smartShutdownTimeout: 2,
    probes: { startup: { periodSeconds: 1 }, readiness: { periodSeconds: 1 } },
  };
}
