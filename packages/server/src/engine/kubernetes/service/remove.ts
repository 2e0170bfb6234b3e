/** The removal of a service or of a read replica set. */
import type { BeginStep, Seen, Verdict } from '../../engine.ts';
import { KINDS } from '../api/kinds.ts';
import { clusterName, setName } from '../manifests/names.ts';
import type { Region } from '../region.ts';
import { endArchive } from './archive-removal.ts';
import { findLeftovers } from './objects.ts';
import { STEPS } from './steps.ts';
import { again, AWAY_MS, failed, overdue, RETRY_MS, STEP_MS, waitForCluster } from './verdicts.ts';

/**
 * Makes one step towards the removal.
 *
 * @param parent the service that a read replica set follows
 */
export async function removeOnce(
  region: Region,
  id: string,
  parent: string | null,
  begin: BeginStep,
): Promise<Verdict> {
  const { cache } = region;
  const cluster = cache.cluster(id);
  const isEnding = cache.podCount(id) > 0 || cache.pooler(id) !== null;
  const seen: Seen = {
    reachable: false,
    present: true,
    provisioned: cluster?.provisioned ?? false,
  };
  region.reached.delete(id);
  region.startingPoolers.delete(id);
  region.followChecks.delete(id);
  region.changedByOthers.delete(id);
  region.takenBack.delete(id);
  const stale = cache.staleWhy();
  if (stale !== null)
    return (
      overdue(region, id, 'read the cluster', AWAY_MS, { seen, why: stale }) ?? again(seen, stale)
    );
  // The pooler ends with its owner, the Cluster.
  if (cluster?.leaving === true || (cluster === null && isEnding))
    return waitForCluster(region, id, STEPS.remove, STEP_MS, { seen, why: 'its pods are ending' });
  const name = parent === null ? clusterName(id) : setName(id);
  try {
    const left = await findLeftovers(region, id, name);
    if (cluster === null && left.length === 0)
      // A read replica set archives nothing.
      return parent === null
        ? await endArchive(region, id, { begin, seen })
        : { did: null, detail: null, seen: { ...seen, present: false }, outcome: 'settled' };
    await begin(STEPS.remove, seen);
    if (cluster !== null) {
      const { namespace } = cluster;
      await region.kube.remove({ kind: KINDS.cluster, namespace, name });
    }
    for (const place of left) await region.kube.remove(place);
  } catch (error) {
    return failed(region, id, STEPS.remove, seen, error);
  }
  return {
    did: STEPS.remove,
    detail: 'the Cluster with its volumes and secrets',
    seen,
    outcome: 'again',
    waitMs: RETRY_MS,
  };
}
