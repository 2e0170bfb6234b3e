/**
 * A fork gets the data of its parent: by a snapshot of its volume, that of a moment by its archive,
 * and that of a running server without a snapshot by `bootstrap.pg_basebackup`. Until its own
 * server runs, its Cluster names where the data is from. Then it is detached: the secret of a
 * running parent opens all data that it will ever have, and a snapshot has no other purpose.
 */
import type { Origin, ServiceSpec } from '../../spec.ts';
import { originBackup, originSnapshot } from '../names.ts';
import { LATEST } from '../cluster/manifest.ts';
import type { Source } from '../cluster/desired-state.ts';
import type { ClusterState, Observed } from '../cluster/state.ts';

/**
 * Where a fork still has to get its data from; null: it has it.
 *
 * @param hasStarted whether a server of the fork runs, with the data
 */
export function sourceOf(
  { id, origin, provisioned, recovery }: ServiceSpec,
  { cluster, ...snapshots }: Sources,
  hasStarted: boolean,
): Source | null {
  // A service whose Cluster was deleted has its data in its own archive.
  const isRecovering = cluster === null ? recovery !== null : cluster.desired?.parent === id;
  if (isRecovering && !hasStarted) return { parent: id, snapshot: null, targetTime: LATEST };
  const hasData = provisioned || cluster?.provisioned === true || hasStarted;
  if (origin === null || hasData) return null;
  const { parent } = origin;
  const before = cluster?.desired ?? null;
  // Without the annotation, it may be copying.
  if (before === null) return { parent, ...chosen(id, origin, snapshots) };
  const { snapshot: made = null, targetTime = null } = before;
  return before.parent === undefined ? null : { parent, snapshot: made, targetTime };
}

function chosen(
  id: string,
  { strategy, targetTime }: Pick<Origin, 'strategy' | 'targetTime'>,
  { snapshot, backup, newestSnapshot }: Omit<Sources, 'cluster'>,
): Omit<Source, 'parent'> {
  switch (strategy) {
    case 'NOW':
      return { snapshot: madeOf(id, { snapshot, backup }), targetTime: null };
    case 'LAST_SNAPSHOT':
      return { snapshot: newestSnapshot, targetTime: null };
    case 'PITR':
      return { snapshot: null, targetTime };
  }
}

function madeOf(
  id: string,
  { snapshot, backup }: Pick<Sources, 'snapshot' | 'backup'>,
): string | null {
  if (snapshot !== null) return originSnapshot(id);
  return backup?.ready === true && backup.problem === null ? originBackup(id) : null;
}

type Sources = Pick<Observed, 'cluster' | 'snapshot' | 'backup' | 'newestSnapshot'>;

/** Whether a fork of this spec may have to look for a snapshot that it is made of. */
export const mayHaveSnapshot = (spec: ServiceSpec, cluster: ClusterState | null): boolean =>
  spec.origin?.strategy === 'NOW' &&
  !spec.provisioned &&
  (cluster === null || cluster.desired === null);

/** Whether PostgreSQL is stopped as asked, so that its volume has all data. */
export const isStopped = ({ desired, awaited, leaving }: ClusterState): boolean =>
  desired?.running === false && awaited === null && !leaving;

/**
 * Why the data of a parent cannot be copied now, in words for users; null: no reason is known.
 *
 * @param copy what would have the data
 */
export function whyNotCopied(
  parent: string,
  cluster: ClusterState | null,
  copy: 'fork' | 'set' = 'fork',
): string | null {
  if (cluster === null || cluster.leaving)
    return `its parent ${parent} has no Cluster any more; delete the ${copy}`;
  if (cluster.desired?.running === false || cluster.hibernated || cluster.fenced)
    return `its parent ${parent} does not run; start that, or delete the ${copy}`;
  return null;
}
