/** Snapshots of volumes: https://kubernetes.io/docs/concepts/storage/volume-snapshots/ */
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
    // Its own volume has the WAL that it needs, and a checkpoint may take minutes.
    onlineConfiguration: { immediateCheckpoint: true, waitForArchive: false },
    snapshotOwnerReference: 'backup',
  },
});

export type BackupInput = Readonly<{
  id: string;
  projectId: string;
  region: string;
  name: string;
  /** The Cluster, with which the backup goes. */
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
  /** Its primary, by its pod. */
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
function backupOf(
  { id, projectId, region, name }: Omit<BackupInput, 'clusterUid'>,
  of: string,
  more: object,
): Manifest {
  return {
    apiVersion: KINDS.backup.apiVersion,
    kind: KINDS.backup.kind,
    metadata: {
      name,
      namespace: namespaceOf(projectId),
      labels: {
        ...MANAGED,
        [LABELS.project]: projectId,
        [LABELS.service]: id,
        [LABELS.region]: region,
      },
      ...more,
    },
    spec: { cluster: { name: clusterName(of) }, method: 'volumeSnapshot' },
  };
}
