/** Changes the primary of a Cluster: as asked, or as a drill. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { DrillKind } from '@howdah/contract';
import { EngineUnavailable } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS } from '../api/kinds.ts';
import { clusterName, podOf } from '../names.ts';
import type { Region } from '../region/region.ts';
import { askChallenge } from '../network/challenge.ts';
import type { ClusterState } from './state.ts';

/** The phase that the operator begins a switchover with (docs/cloudnativepg.md, fact 16). */
const SWITCHING_OVER = 'Switchover in progress';

/** A status that has changed meanwhile is not overwritten; the operator changes it often. */
const ATTEMPTS = 20;
const AGAIN_MS = 250;
const CONFLICT = 409;

/**
 * Asks the operator to make a member the primary. The request is a part of the status of the
 * Cluster.
 *
 * @throws KubeError 409 when the status does not stop changing
 */
export async function requestPrimary(region: Region, id: string, to: number): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    const cluster = region.cache.cluster(id);
    // A failover began by itself meanwhile, or the service is being deleted.
    if (cluster === null || cluster.leaving || cluster.isChangingPrimary) return;
    try {
      return await patchStatus(region, id, cluster, to);
    } catch (error) {
      const isConflict = error instanceof KubeError && error.status === CONFLICT;
      if (!isConflict || attempt === ATTEMPTS) throw error;
      await sleep(AGAIN_MS);
    }
  }
}

async function patchStatus(
  { kube, cache }: Region,
  id: string,
  { namespace, version }: ClusterState,
  to: number,
): Promise<void> {
  const target = podOf(id, to);
  const place = { kind: KINDS.cluster, namespace, name: clusterName(id) };
  const status = {
    targetPrimary: target,
    // With microseconds, as the operator writes it.
    targetPrimaryTimestamp: new Date().toISOString().replace('Z', '000Z'),
    phase: SWITCHING_OVER,
    phaseReason: `Switching over to ${target}`,
  };
  const patch = { metadata: { resourceVersion: version }, status };
  cache.put(await kube.merge(place, patch, 'status'));
}

/** Between two logins of a drill. */
const POLL_MS = 100;
const DRILL_WITHIN_MS = 180_000;
/** PostgreSQL is killed after a second: it has no time to stop as in a switchover. */
const KILL_AFTER_S = 1;

/**
 * Changes or kills the primary, and logs in until another one answers. The control plane has no
 * session in the service, so it measures logins and no writes.
 *
 * @returns the result for users
 * @throws EngineUnavailable when no other primary answers in time
 */
export function runDrill(
  region: Region,
  { id, endpoint }: ServiceSpec,
  cluster: ClusterState,
  { drill, to }: Readonly<{ drill: DrillKind; to: number }>,
): Promise<string> {
  const { failovers, cache, authority } = region;
  return failovers.rehearse(id, async () => {
    await injectFault(region, id, cluster, drill, to);
    const endMs = Date.now() + DRILL_WITHIN_MS;
    let answeredMs = Date.now();
    let longestMs = 0;
    for (;;) {
      const now = cache.cluster(id);
      const isAnswered = await askChallenge(endpoint, authority.certificatePem).then(
        () => true,
        () => false,
      );
      if (isAnswered) {
        longestMs = Math.max(longestMs, Date.now() - answeredMs);
        answeredMs = Date.now();
      }
      if (isAnswered && now !== null && hasOther(now, cluster.primary)) {
        await failovers.record(id, now);
        const seconds = (longestMs / 1000).toFixed(1);
        return (
          `no login for ${seconds} s; member ${now.primary} is the primary; ` +
          'writes are not measured'
        );
      }
      if (Date.now() > endMs)
        throw new EngineUnavailable(
          `no other primary answered within ${DRILL_WITHIN_MS / 1000} s; examine the cluster: ` +
            'howdah region doctor',
        );
      await sleep(POLL_MS);
    }
  });
}

const hasOther = ({ primary, isChangingPrimary }: ClusterState, before: number | null): boolean =>
  !isChangingPrimary && primary !== null && primary !== before;

async function injectFault(
  region: Region,
  id: string,
  cluster: ClusterState,
  drill: DrillKind,
  to: number,
): Promise<void> {
  switch (drill) {
    case 'switchover':
      return requestPrimary(region, id, to);
    case 'failover': {
      const name = podOf(id, cluster.primary ?? 0);
      const place = { kind: KINDS.pod, namespace: cluster.namespace, name };
      await region.kube.remove(place, KILL_AFTER_S);
    }
  }
}
