/**
 * Brings a former primary back as a standby without the pause that Kubernetes makes. After a
 * switchover, the container of the former primary ends, and Kubernetes starts it again: at once the
 * first time, and 10, 20, 40 s later if it has ended before within ten minutes. A new pod with the
 * same volume starts at once. Where it is the only synchronous standby, all writes wait for it.
 */
import { KINDS } from '../api/kinds.ts';
import type { Kube } from '../api/client.ts';
import type { Cache } from '../cache.ts';
import { podOf } from '../manifests/names.ts';
import type { ClusterState, ServerState } from './observed.ts';

/**
 * The server whose pod is replaced: no process of it runs, it ended without an error, and another
 * one is the primary for good.
 */
export function heldBackIn(
  { primary, isChangingPrimary, leaving, fenced, desired }: ClusterState,
  servers: readonly ServerState[],
): ServerState | null {
  if (primary === null || isChangingPrimary || leaving || fenced) return null;
  if (desired?.running !== true) return null;
  return servers.find(({ n, isHeldBack }) => isHeldBack && n !== primary) ?? null;
}

/** @returns a function for a service whose Cluster or pods have changed */
export function createReturns(
  kube: Pick<Kube, 'remove'>,
  cache: Pick<Cache, 'cluster' | 'servers'>,
  failed: (error: unknown) => void,
): (id: string) => void {
  /** The pods that were asked to end, by their services: their end takes a moment. */
  const asked = new Map<string, string>();
  return (id) => {
    const cluster = cache.cluster(id);
    const server = cluster === null ? null : heldBackIn(cluster, cache.servers(id));
    if (cluster === null || server === null || asked.get(id) === server.uid) return;
    asked.set(id, server.uid);
    const { namespace } = cluster;
    kube
      .remove({ kind: KINDS.pod, namespace, name: podOf(id, server.n) })
      .catch((error: unknown) => {
        asked.delete(id);
        failed(error);
      });
  };
}
