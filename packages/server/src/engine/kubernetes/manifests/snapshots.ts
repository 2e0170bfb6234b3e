/** Snapshots of volumes: https://kubernetes.io/docs/concepts/storage/volume-snapshots/ */
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import { AWAITED, LABELS, MANAGED, namespaceOf, originSnapshot } from './names.ts';

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

/** The fields of a Cluster whose first volume is made of the snapshot of its parent's. */
export const recoveryOf = (id: string): object => ({
  volumeSnapshots: {
    storage: {
      apiGroup: KINDS.snapshot.apiVersion.split('/')[0],
      kind: KINDS.snapshot.kind,
      name: originSnapshot(id),
    },
  },
});
