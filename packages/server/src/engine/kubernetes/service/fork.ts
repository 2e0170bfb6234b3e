/**
 * A fork copies the data of its parent by `bootstrap.pg_basebackup`. Until its own server runs, its
 * Cluster names the parent, with the secret that opens the primary of that. Then it is detached:
 * the secret opens all data that the parent will ever have.
 */
import type { ServiceSpec } from '../../spec.ts';
import type { ClusterState } from './observed.ts';

/**
 * The service whose data a fork still has to copy; null: none.
 *
 * @param hasStarted whether a server of the fork runs, with the data
 */
export function copiedParent(
  { origin, provisioned }: ServiceSpec,
  cluster: ClusterState | null,
  hasStarted: boolean,
): string | null {
  if (origin === null || provisioned) return null;
  if (cluster === null) return origin.parent;
  if (cluster.provisioned || hasStarted) return null;
  // Without the annotation, it may be copying.
  const isAttached = cluster.desired === null || cluster.desired.parent !== undefined;
  return isAttached ? origin.parent : null;
}

/** Why the data of a parent cannot be copied now, in words for users; null: no reason is known. */
export function whyNotCopied(parent: string, cluster: ClusterState | null): string | null {
  if (cluster === null || cluster.leaving)
    return `its parent ${parent} has no Cluster any more; delete the fork`;
  if (cluster.desired?.running === false || cluster.hibernated || cluster.fenced)
    return `its parent ${parent} does not run; start that, or delete the fork`;
  return null;
}
