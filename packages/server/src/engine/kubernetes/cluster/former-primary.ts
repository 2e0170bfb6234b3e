/**
 * Brings a former primary back as a standby without the pause that Kubernetes makes. After a
 * switchover, the container of the former primary ends, and Kubernetes starts it again: at once the
 * first time, and 10, 20, 40 s later if it has ended before within ten minutes. A new pod with the
 * same volume starts at once. Where it is the only synchronous standby, all writes wait for it.
 */
import { KINDS } from '../api/kinds.ts';
import type { Kube } from '../api/client.ts';
import type { Cache } from '../region/cache.ts';
import { podOf } from '../names.ts';
import type { ClusterState, ServerState } from './state.ts';

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

/**
 * A change of the primary has one former primary, so one pod is replaced for it. A server that
 * ends again and again waits longer each time, as Kubernetes has it.
 *
 * @param failed called with the error of a request, which the next change begins again
 * @returns a function for a service whose Cluster or pods have changed
 */
export function createReturns(
  kube: Pick<Kube, 'remove'>,
  cache: Pick<Cache, 'cluster' | 'servers'>,
  failed: (error: unknown) => void,
): (id: string) => void {
  /** The primaries of services, and whether a pod was replaced since each became it. */
  const known = new Map<string, { primary: number | null; isReplaced: boolean }>();
  return (id) => {
    const cluster = cache.cluster(id);
    if (cluster === null) return void known.delete(id);
    const { namespace, primary } = cluster;
    const before = known.get(id);
    const current = before?.primary === primary ? before : { primary, isReplaced: false };
    known.set(id, current);
    const server = current.isReplaced ? null : heldBackIn(cluster, cache.servers(id));
    if (server === null) return;
    current.isReplaced = true;
    kube
      .remove({ kind: KINDS.pod, namespace, name: podOf(id, server.n) })
      .catch((error: unknown) => {
        current.isReplaced = false;
        failed(error);
      });
  };
}
