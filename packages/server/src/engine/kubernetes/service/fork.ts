/**
 * A fork copies the data of its parent: that of a running server by `bootstrap.pg_basebackup`, that
 * of a stopped one by a snapshot of its volume, that of a moment by its archive. Until its own
 * server runs, its Cluster names where the data is from. Then it is detached: the secret of a
 * running parent opens all data that it will ever have, and a snapshot has no other purpose.
 */
import type { Origin, ServiceSpec } from '../../spec.ts';
import { originSnapshot } from '../manifests/names.ts';
import type { Source } from './desired.ts';
import type { ClusterState, Observed } from './observed.ts';

/**
 * Where a fork still has to get its data from; null: it has it.
 *
 * @param hasStarted whether a server of the fork runs, with the data
 */
export function sourceOf(
  { id, origin, provisioned }: ServiceSpec,
  { cluster, snapshot, newestSnapshot }: Sources,
  hasStarted: boolean,
): Source | null {
  const hasData = provisioned || cluster?.provisioned === true || hasStarted;
  if (origin === null || hasData) return null;
  const { parent } = origin;
  const before = cluster?.desired ?? null;
  // Without the annotation, it may be copying.
  if (before === null) return { parent, ...chosen(id, origin, { snapshot, newestSnapshot }) };
  const { snapshot: made = null, targetTime = null } = before;
  return before.parent === undefined ? null : { parent, snapshot: made, targetTime };
}

function chosen(
  id: string,
  { strategy, targetTime }: Pick<Origin, 'strategy' | 'targetTime'>,
  { snapshot, newestSnapshot }: Pick<Sources, 'snapshot' | 'newestSnapshot'>,
): Omit<Source, 'parent'> {
  switch (strategy) {
    case 'NOW':
      return { snapshot: snapshot === null ? null : originSnapshot(id), targetTime: null };
    case 'LAST_SNAPSHOT':
      return { snapshot: newestSnapshot, targetTime: null };
    case 'PITR':
      return { snapshot: null, targetTime };
  }
}

type Sources = Pick<Observed, 'cluster' | 'snapshot' | 'newestSnapshot'>;

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
