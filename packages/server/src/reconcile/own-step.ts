/** One step of a service in its own region, after its read replica sets and the forks of it. */
import { mustBeRemoved } from '../domain/service/removal.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import type { BeginStep, Verdict } from '../engine/engine.ts';
import { haveSetsOperations, removeSets } from '../store/services.ts';
import { listParentsOfUnfinishedForks } from '../store/service-lists.ts';
import { announceFault, type ReconcilerContext, type Work } from './work.ts';

/** How often a service that waits for its sets checks whether they are ready. */
const WITH_SETS_MS = 50;

const SETS_FIRST: Verdict = {
  did: null,
  detail: 'its read replica sets go first',
  seen: { reachable: false, present: true, provisioned: false },
  outcome: 'again',
  waitMs: WITH_SETS_MS,
};

const FORKS_FIRST: Verdict = { ...SETS_FIRST, detail: 'it is being forked', waitMs: 500 };

/** Makes one step towards the desired state of a service, or towards its removal. */
export async function askOwnEngine(
  context: ReconcilerContext,
  work: Work,
  begin: BeginStep,
): Promise<Verdict> {
  const { region, store, restoreWindowMs } = context;
  if (await waitsForSets(context, work.service)) return SETS_FIRST;
  if (mustBeRemoved(work.service, restoreWindowMs)) {
    if ((await listParentsOfUnfinishedForks(store.db)).has(work.id)) return FORKS_FIRST;
    return region.engine.lifecycle.remove(work.id, work.service.parent_id, begin);
  }
  const verdict = await region.engine.lifecycle.converge(serviceSpec(work.service), begin);
  if (verdict.outcome === 'settled') {
    if (!(await waitsForMoves(context, work))) return verdict;
    return {
      ...verdict,
      detail: 'its read replica sets are being moved',
      outcome: 'again',
      waitMs: WITH_SETS_MS,
    };
  }
  await announceFault(context, work, verdict.seen);
  return verdict;
}

/** The read replica sets of a service stop, or are removed, before it is. */
async function waitsForSets(
  { store, restoreWindowMs }: ReconcilerContext,
  service: ServiceRow,
): Promise<boolean> {
  const { id, power, deleting, read_replica_sets: sets } = service;
  if (sets.length === 0 || (power === 'running' && !deleting)) return false;
  if (mustBeRemoved(service, restoreWindowMs))
    await store.db.transaction().execute((tx) => removeSets(tx, id));
  return haveSetsOperations(store.db, id);
}

/**
 * A move into or out of a VPC ends with the moves of the read replica sets: they use its address.
 */
async function waitsForMoves(
  { store }: ReconcilerContext,
  { id, service, operation }: Work,
): Promise<boolean> {
  return (
    service.read_replica_sets.length > 0 &&
    (operation?.kind === 'attachToVPC' || operation?.kind === 'detachFromVPC') &&
    haveSetsOperations(store.db, id)
  );
}
