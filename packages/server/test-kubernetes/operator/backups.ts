/**
 * Backups by volume snapshots: docs/cloudnativepg.md, facts 27 and 38. CloudNativePG takes the
 * snapshot between the begin and the end of an online backup; the double takes one after a
 * checkpoint. The rest is the recovery of PostgreSQL after a crash for both.
 */
import { Type, type Static } from 'typebox';
import type { Api } from './api.ts';
import {
  CLUSTERS,
  targetPrimary,
  isLeaving,
  isReady,
  METADATA,
  type Cluster,
  type Pod,
} from './cluster.ts';
import { HIBERNATION, type Tools } from './status.ts';

const BACKUP = Type.Object({
  metadata: METADATA,
  spec: Type.Object({
    cluster: Type.Object({ name: Type.String() }),
    method: Type.Literal('volumeSnapshot'),
  }),
  status: Type.Optional(Type.Object({ phase: Type.Optional(Type.String()) })),
});
type Backup = Static<typeof BACKUP>;

const SNAPSHOT = Type.Object({
  metadata: METADATA,
  status: Type.Optional(Type.Object({ readyToUse: Type.Optional(Type.Boolean()) })),
});

const SNAPSHOTS = '/apis/snapshot.storage.k8s.io/v1';

/** Does a part of each backup that has not ended. */
export async function backUp(
  tools: Tools,
  clusters: readonly Cluster[],
  pods: readonly Pod[],
): Promise<void> {
  const { api } = tools;
  const all = await api.list(`${CLUSTERS}/backups`, BACKUP);
  const snapshots = await api.list(`${SNAPSHOTS}/volumesnapshots`, SNAPSHOT);
  for (const backup of all) {
    const { phase } = backup.status ?? {};
    if (phase === 'completed' || phase === 'failed' || isLeaving(backup)) continue;
    const is = (one: Readonly<{ metadata: Static<typeof METADATA> }>, name: string): boolean =>
      one.metadata.namespace === backup.metadata.namespace && one.metadata.name === name;
    const cluster = clusters.find((one) => is(one, backup.spec.cluster.name));
    if (cluster === undefined) continue;
    if (phase === undefined && all.some((other) => isUnderWay(other, backup))) continue;
    const snapshot = snapshots.find((one) => is(one, backup.metadata.name));
    // backup_controller.go, getBackupTargetPod: in a switchover that is the next one.
    const primary = pods.find((one) => is(one, targetPrimary(cluster)));
    if (snapshot?.status?.readyToUse === true) await complete(api, backup);
    else if (cluster.metadata.annotations?.[HIBERNATION] === 'on')
      await writeStatus(api, backup, {
        phase: 'failed',
        error: 'cannot backup a hibernated cluster',
      });
    else if (snapshot === undefined && primary !== undefined && isReady(primary))
      await begin(tools, cluster, backup, primary);
  }
}

/** One backup of a Cluster is taken at a time. */
const isUnderWay = ({ metadata, spec, status }: Backup, next: Backup): boolean =>
  metadata.namespace === next.metadata.namespace &&
  spec.cluster.name === next.spec.cluster.name &&
  status?.phase === 'started';

async function begin(
  { api, exec }: Tools,
  { spec }: Cluster,
  backup: Backup,
  primary: Pod,
): Promise<void> {
  const { name, namespace, uid } = backup.metadata;
  const { labels } = spec.inheritedMetadata;
  // The operator does not find the volume then: docs/cloudnativepg.md, fact 31.
  if (labels['app.kubernetes.io/managed-by'] !== undefined) return;
  await writeStatus(api, backup, {
    phase: 'started',
    startedAt: new Date().toISOString(),
    instanceID: { podName: primary.metadata.name },
  });
  await exec(primary, 'psql --no-psqlrc --host=/tmp --username=postgres --command=checkpoint');
  await api.create(`${SNAPSHOTS}/namespaces/${namespace}/volumesnapshots`, {
    apiVersion: 'snapshot.storage.k8s.io/v1',
    kind: 'VolumeSnapshot',
    metadata: {
      name,
      namespace,
      // Those of the volume, whichever Backup it is.
      labels: { ...labels, 'cnpg.io/backupName': name },
      ownerReferences: [{ apiVersion: 'postgresql.cnpg.io/v1', kind: 'Backup', name, uid }],
    },
    spec: {
      volumeSnapshotClassName: spec.backup?.volumeSnapshot.className,
      source: { persistentVolumeClaimName: primary.metadata.name },
    },
  });
}

const complete = (api: Api, backup: Backup): Promise<void> =>
  writeStatus(api, backup, {
    phase: 'completed',
    stoppedAt: new Date().toISOString(),
    snapshotBackupStatus: { elements: [{ name: backup.metadata.name, type: 'PG_DATA' }] },
  });

const writeStatus = (api: Api, { metadata }: Backup, status: object): Promise<void> =>
  api.merge(`${CLUSTERS}/namespaces/${metadata.namespace}/backups/${metadata.name}/status`, {
    status,
  });
