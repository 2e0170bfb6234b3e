/**
 * Finds services whose server died without a report: at a start of the control plane, and by a
 * timer.
 */
import { lockService, changeService } from '../store/services.ts';
import { listReachableServices } from '../store/service-lists.ts';
import { openRepair, type ReconcilerContext } from './work.ts';

/** Records that a service is not reachable, if its server is gone. */
export async function recordDeath(
  { store, region, log }: ReconcilerContext,
  id: string,
): Promise<void> {
  if (await region.engine.lifecycle.runs(id)) return;
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null) return;
    const { service, operation } = locked;
    const mustRun =
      service.project_id !== null && operation === null && service.power === 'running';
    if (mustRun) await openRepair(tx, log, service);
    else await changeService(tx, service, { reachable: false }, operation);
  });
}

/**
 * Wakes services whose server is gone. The monitor reports a death within milliseconds; this finds
 * the deaths that were not reported, and records those that reconciling has not repaired meanwhile.
 *
 * @param deadBefore services that the last round has found dead
 * @returns services that this round has found dead
 */
export async function findDeaths(
  context: ReconcilerContext,
  deadBefore: ReadonlySet<string>,
  wake: (id: string) => void,
): Promise<Set<string>> {
  const dead = new Set<string>();
  for (const id of await listReachableServices(context.store.db, context.region.code)) {
    if (context.closing.aborted) break;
    if (await context.region.engine.lifecycle.runs(id)) continue;
    dead.add(id);
    if (deadBefore.has(id)) await recordDeath(context, id);
    wake(id);
  }
  return dead;
}
