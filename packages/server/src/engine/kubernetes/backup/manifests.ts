/**
 * Backups, by snapshots of volumes and by the Barman Cloud plugin of CloudNativePG:
 * https://kubernetes.io/docs/concepts/storage/volume-snapshots/
 * https://cloudnative-pg.io/plugin-barman-cloud/docs/usage/
 */
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import {
  ASKED_OF,
  AWAITED,
  clusterName,
  LABELS,
  MANAGED,
  namespaceOf,
  originBackup,
  originSnapshot,
} from '../names.ts';
import { folderOf, type ObjectStore } from '../../object-store.ts';
import { secretManifest } from '../cluster/secrets.ts';

export type SnapshotInput = Readonly<{
  /** The fork that is made of it. */
  id: string;
  projectId: string;
  className: string;
  /** The volume, by its claim. */
  claim: string;
  /** The step that takes it. */
  step: string;
}>;

/** The snapshot of a volume, for a fork. */
export function originSnapshotManifest(input: SnapshotInput): Manifest {
  const { id, projectId, className, claim, step } = input;
  return {
    apiVersion: KINDS.snapshot.apiVersion,
    kind: KINDS.snapshot.kind,
    metadata: {
      name: originSnapshot(id),
      namespace: namespaceOf(projectId),
      labels: { ...MANAGED, [LABELS.project]: projectId, [LABELS.service]: id },
      annotations: { [AWAITED]: step },
    },
    spec: {
      volumeSnapshotClassName: className,
      source: { persistentVolumeClaimName: claim },
    },
  };
}

/**
 * The fields of a Cluster whose first volume is made of a snapshot. PostgreSQL recovers that of a
 * running server as after a crash, to the end of its WAL (docs/cloudnativepg.md, fact 38).
 */
export const recoveryOf = (snapshot: string): object => ({
  volumeSnapshots: {
    storage: {
      apiGroup: KINDS.snapshot.apiVersion.split('/')[0],
      kind: KINDS.snapshot.kind,
      name: snapshot,
    },
  },
});

/** How backups of a Cluster are taken. @param className for snapshots of its volumes */
export const backupsOf = (className: string): object => ({
  // A standby may lag.
  target: 'primary',
  volumeSnapshot: {
    className,
    online: true,
    // The backup's own volume has the WAL that it needs, and a checkpoint may take minutes.
    onlineConfiguration: { immediateCheckpoint: true, waitForArchive: false },
    snapshotOwnerReference: 'backup',
  },
});

export type BackupInput = Readonly<{
  id: string;
  projectId: string;
  region: string;
  name: string;
  /** The Cluster, with which the object goes. */
  clusterUid: string;
}>;

/** A backup of a service, by a snapshot of the volume of its primary. */
export function backupManifest(input: BackupInput): Manifest {
  const { apiVersion, kind } = KINDS.cluster;
  const owner = { apiVersion, kind, name: clusterName(input.id), uid: input.clusterUid };
  return backupOf(input, input.id, { ownerReferences: [owner] });
}

export type OriginBackupInput = Readonly<{
  /** The fork that is made of it. */
  id: string;
  projectId: string;
  region: string;
  /** The running service that is backed up. */
  parent: string;
  /** The primary of the parent, by its pod. */
  pod: string;
  /** The step that takes it. */
  step: string;
}>;

/** A backup of a running service, for a fork. It stays when the service is purged. */
export const originBackupManifest = ({
  parent,
  pod,
  step,
  ...input
}: OriginBackupInput): Manifest =>
  backupOf({ ...input, name: originBackup(input.id) }, parent, {
    annotations: { [AWAITED]: step, [ASKED_OF]: pod },
  });

/** @param of the service that is backed up @param more metadata */
function backupOf(input: Omit<BackupInput, 'clusterUid'>, of: string, more: object): Manifest {
  const { projectId, name } = input;
  return {
    apiVersion: KINDS.backup.apiVersion,
    kind: KINDS.backup.kind,
    metadata: {
      name,
      namespace: namespaceOf(projectId),
      labels: labelsOf(input),
      ...more,
    },
    spec: { cluster: { name: clusterName(of) }, method: 'volumeSnapshot' },
  };
}

// Archived WAL and base backups, by the plugin.

export const PLUGIN = 'barman-cloud.cloudnative-pg.io';

/** The credentials of the bucket of a region, in each namespace that has services of it. */
export const storeSecret = (region: string): string => `howdah-object-store-${region}`;
/** The ObjectStore of a service, and its folder in the bucket. */
export const objectStoreName = clusterName;

/** The ConfigMap with the moment up to which all of a service is archived. */
export const archiveRecordName = (id: string): string => `${clusterName(id)}-archived`;

/** PostgreSQL ends a WAL file after this time, so that it is archived. */
export const ARCHIVE_TIMEOUT = '60s';

export type ArchiveInput = Readonly<{
  id: string;
  projectId: string;
  region: string;
  store: ObjectStore;
  retentionDays: number;
}>;

export function storeSecretManifest({ projectId, region, store }: ArchiveInput): Manifest {
  const { keyId, key, region: place, caPem } = store;
  return secretManifest(
    storeSecret(region),
    projectId,
    { [LABELS.region]: region },
    {
      ACCESS_KEY_ID: keyId,
      ACCESS_SECRET_KEY: key,
      REGION: place,
      ...(caPem === null ? {} : { 'ca.crt': caPem }),
    },
  );
}

/** One for each service, since the retention is a field of it. */
export function objectStoreManifest(input: ArchiveInput): Manifest {
  const { id, projectId, region, store, retentionDays } = input;
  const name = storeSecret(region);
  const secret = (key: string) => ({ name, key });
  return {
    apiVersion: KINDS.objectStore.apiVersion,
    kind: KINDS.objectStore.kind,
    metadata: {
      name: objectStoreName(id),
      namespace: namespaceOf(projectId),
      labels: labelsOf(input),
    },
    spec: {
      configuration: {
        destinationPath: `s3://${store.bucket}/${folderOf(store)}`,
        endpointURL: store.endpoint,
        ...(store.caPem === null ? {} : { endpointCA: secret('ca.crt') }),
        s3Credentials: {
          accessKeyId: secret('ACCESS_KEY_ID'),
          secretAccessKey: secret('ACCESS_SECRET_KEY'),
          region: secret('REGION'),
        },
        wal: { compression: 'gzip', maxParallel: 4 },
        data: { compression: 'gzip', immediateCheckpoint: true },
      },
      retentionPolicy: `${retentionDays}d`,
      instanceSidecarConfiguration: {
        resources: {
          requests: { cpu: '50m', memory: '128Mi' },
          limits: { memory: '512Mi' },
        },
      },
    },
  };
}

/**
 * The moment up to which all is archived. It is no annotation of the ObjectStore: the plugin writes
 * the status of that only if nobody has changed it since a base backup began.
 */
export function archiveRecordManifest(input: ArchiveRecordInput): Manifest {
  const { id, projectId, data } = input;
  return {
    apiVersion: KINDS.configMap.apiVersion,
    kind: KINDS.configMap.kind,
    metadata: {
      name: archiveRecordName(id),
      namespace: namespaceOf(projectId),
      labels: labelsOf(input),
    },
    data,
  };
}

export type ArchiveRecordInput = Pick<ArchiveInput, 'id' | 'projectId' | 'region'> &
  Readonly<{ data: Readonly<Record<string, string>> }>;

const labelsOf = ({
  id,
  projectId,
  region,
}: Pick<ArchiveInput, 'id' | 'projectId' | 'region'>) => ({
  ...MANAGED,
  [LABELS.project]: projectId,
  [LABELS.service]: id,
  [LABELS.region]: region,
});

/** The name of a Cluster's own archive, from which its data is recovered. */
const OWN_ARCHIVE = 'archive';

const parametersOf = (id: string, server: string) => ({
  barmanObjectName: objectStoreName(id),
  serverName: objectStoreName(server),
});

/** The plugin in a Cluster that archives its WAL. */
export const archiverOf = (id: string): object => ({
  name: PLUGIN,
  enabled: true,
  isWALArchiver: true,
  parameters: parametersOf(id, id),
});

/**
 * The fields of a Cluster whose data is that of another one, or its own, at a moment. It is read by
 * the ObjectStore of the fork, so that the parent may be removed once the data is copied.
 *
 * @param targetTime null: all that is archived
 */
export function pointInTimeOf(id: string, parent: string, targetTime: string | null) {
  const source = id === parent ? OWN_ARCHIVE : clusterName(parent);
  return {
    recovery: { source, ...(targetTime === null ? {} : { recoveryTarget: { targetTime } }) },
    externalClusters: [
      { name: source, plugin: { name: PLUGIN, parameters: parametersOf(id, parent) } },
    ],
  };
}

/** The object goes with its Cluster; its data in the bucket stays. */
export function baseBackupManifest(input: BackupInput): Manifest {
  const { id, projectId, name, clusterUid } = input;
  const { apiVersion, kind } = KINDS.cluster;
  return {
    apiVersion: KINDS.backup.apiVersion,
    kind: KINDS.backup.kind,
    metadata: {
      name,
      namespace: namespaceOf(projectId),
      labels: labelsOf(input),
      ownerReferences: [{ apiVersion, kind, name: clusterName(id), uid: clusterUid }],
    },
    spec: {
      cluster: { name: clusterName(id) },
      method: 'plugin',
      // A standby may lag. The Cluster says so only where it has a class for snapshots.
      target: 'primary',
      pluginConfiguration: { name: PLUGIN },
    },
  };
}
