/** Snapshots of volumes: https://kubernetes.io/docs/concepts/storage/volume-snapshots/ */
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import { AWAITED, clusterName, LABELS, MANAGED, namespaceOf, originSnapshot } from './names.ts';

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
 * The fields of a Cluster whose first volume is made of a snapshot. PostgreSQL did not run while
 * that of a fork was taken; one that was taken of a running server is recovered to its end.
 */
export const recoveryOf = (id: string, snapshot: string): object => ({
  volumeSnapshots: {
    storage: {
      apiGroup: KINDS.snapshot.apiVersion.split('/')[0],
      kind: KINDS.snapshot.kind,
      name: snapshot,
    },
  },
  ...(snapshot === originSnapshot(id) ? {} : { recoveryTarget: { targetImmediate: true } }),
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

/** A backup of a Cluster, by a snapshot of the volume of its primary. */
export function backupManifest({ id, projectId, region, name, clusterUid }: BackupInput): Manifest {
  const { apiVersion, kind } = KINDS.cluster;
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
      ownerReferences: [{ apiVersion, kind, name: clusterName(id), uid: clusterUid }],
    },
    spec: { cluster: { name: clusterName(id) }, method: 'volumeSnapshot' },
  };
}
