/**
 * Reconciles the services of a region with their desired state: when asked to look at one, when
 * something watched has changed, and by a timer. A reconciler takes the claim of a service, lets
 * the engine converge step by step, and records what was seen. Each part can be interrupted and
 * repeated. A delete is the only undo.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { MAX_BACKOFF_MS } from '../domain/service/backoff.ts';
import {
  dueServices,
  CLAIM_MS,
  ClaimLost,
  makeAllDue,
  releaseService,
  renewClaim,
} from '../store/claims.ts';
import type { Round } from '../lib/rounds.ts';
import { listReachableServices } from '../store/service-lists.ts';
import { record } from './record.ts';
import { takeStep } from './take-step.ts';
import {
  openWork,
  type ReconcilerContext,
  type ReconcilerOptions,
  type Work,
  openRepair,
} from './work.ts';
import { lockService, changeService } from '../store/services.ts';

/**
 * Services reconciled at the same time: what two cores can start at a time (docs/performance.md,
 * section 1, parallel creates), and some that wait for the disk.
 */
const PARALLEL_SERVICES = 12;

/** The wait before a statement on the metadata database is repeated after an error. */
const METADATA_RETRY_MS = 500;

/** A service that only waits gives its place up after this long: what it waits for may need one. */
const GIVE_WAY_AFTER_MS = 3000;

/** Which services wait for a place, and which are being reconciled. */
type Queue = {
  readonly waiting: Set<string>;
  readonly running: Map<string, Promise<void>>;
};

export function createReconciler(options: ReconcilerOptions) {
  const close = new AbortController();
  const context: ReconcilerContext = { ...options, closing: close.signal };
  const { store, region, log, rounds } = options;
  const queue: Queue = { waiting: new Set(), running: new Map() };

  const lookAt = (id: string): void => lookAtService(context, queue, id);

  const lookAtDue = async (): Promise<void> => {
    for (const id of await dueServices(store.db, region.code, PARALLEL_SERVICES * 4)) lookAt(id);
  };
  let deadBefore: ReadonlySet<string> = new Set();
  const repeated = [
    rounds.every('dueServices', lookAtDue, log),
    rounds.every(
      'deaths',
      async () => {
        deadBefore = await findDeaths(context, deadBefore, lookAt);
      },
      log,
    ),
  ];

  return {
    /** Has a service reconciled. If that is in progress, the service is reconciled once more. */
    lookAt,
    /** Whether so many services are in progress that less urgent work should wait. */
    isCrowded: (): boolean => queue.running.size >= PARALLEL_SERVICES / 2,
    /**
     * Records what died while no control plane ran, before any client reads; then reconciles
     * everything.
     */
    start: async (): Promise<void> => {
      const reachable = await listReachableServices(store.db, region.code);
      await Promise.all(reachable.map((id) => recordDeath(context, id)));
      await makeAllDue(store.db, region.code);
      // The timer finds what a lost notification asked for.
      store.listen('howdah_service', (id) => (id === null ? undefined : lookAt(id)));
      for (const round of repeated) round.start();
    },
    /** Lets the steps in progress end. */
    close: async (): Promise<void> => {
      close.abort();
      await Promise.all(repeated.map((round) => round.close()));
      queue.waiting.clear();
      await Promise.all(queue.running.values());
    },
  };
}

function lookAtService(context: ReconcilerContext, queue: Queue, id: string): void {
  if (context.closing.aborted) return;
  queue.waiting.add(id);
  startWaiting(context, queue);
}

/** Starts the services that wait, as far as there are places. */
function startWaiting(context: ReconcilerContext, queue: Queue): void {
  for (const id of queue.waiting) {
    if (queue.running.size >= PARALLEL_SERVICES) return;
    if (queue.running.has(id)) continue;
    queue.waiting.delete(id);
    const done = reconcile(context, id)
      .catch((error: unknown) => {
        context.log.error({ service: id, err: error }, 'observing a service failed; trying again');
        // The metadata database may not have answered: then it does not know that the service is
        // due.
        setTimeout(() => lookAtService(context, queue, id), METADATA_RETRY_MS).unref();
      })
      .finally(() => {
        queue.running.delete(id);
        startWaiting(context, queue);
      });
    queue.running.set(id, done);
  }
}

async function reconcile(context: ReconcilerContext, id: string): Promise<void> {
  const claim = { id, token: randomUUID() };
  let renewal: Round | undefined;
  try {
    const work = await openWork(context, claim);
    if (work === null) return;
    renewal = keepRenewing(context, work);
    await convergeUntilReleased(context, work);
  } catch (error) {
    if (error instanceof ClaimLost) return;
    // The claim may have been taken even though the response was lost.
    await giveBackAfterError(context, claim);
    throw error;
  } finally {
    // A renewal that waits for the metadata database keeps nobody from working.
    void renewal?.close();
  }
}

function keepRenewing(
  { store, log, rounds }: ReconcilerContext,
  { id, token }: Pick<Work, 'id' | 'token'>,
): Round {
  const round = rounds.every('claims', () => renewClaim(store.db, id, token), log);
  round.startLater();
  return round;
}

/** Gives a claim back after an error. It tries until the claim has expired anyway. */
async function giveBackAfterError(
  { store, log, closing }: ReconcilerContext,
  { id, token }: Pick<Work, 'id' | 'token'>,
): Promise<void> {
  for (const endMs = Date.now() + CLAIM_MS; Date.now() < endMs; await sleep(METADATA_RETRY_MS)) {
    try {
      return await releaseService(store.db, id, token, MAX_BACKOFF_MS / 10);
    } catch (error) {
      log.warn({ service: id, err: error }, 'could not release a claim');
      if (closing.aborted) return;
    }
  }
}

/** Makes step after step, until there is nothing to do now. */
async function convergeUntilReleased(context: ReconcilerContext, begun: Work): Promise<void> {
  let work: Work | null = begun;
  const giveWayAtMs = Date.now() + GIVE_WAY_AFTER_MS;
  while (work !== null) {
    const verdict = await takeStep(context, work);
    const waitMs = verdict.outcome === 'again' ? verdict.waitMs : 0;
    work = await record(context, work, verdict, waitMs > 0 && Date.now() > giveWayAtMs);
    if (work !== null && waitMs > 0) await sleep(waitMs);
  }
}

// Finds services whose server died without a report: at a start of the control plane, and by a
// timer.

/** Records that a service is not reachable, if its server is gone. */
async function recordDeath({ store, region, log }: ReconcilerContext, id: string): Promise<void> {
  if (await region.engine.lifecycle.runs(id)) return;
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null) return;
    const { service, operation } = locked;
    // Nothing is to be repaired: the reconciler opens the endpoint of a sleeper again.
    if (service.suspended_at !== null && operation === null) return;
    const mustRun =
      service.project_id !== null && operation === null && service.power === 'running';
    if (mustRun) await openRepair(tx, log, service);
    else await changeService(tx, service, { reachable: false }, operation);
  });
}

/**
 * Looks at services whose server is gone. The monitor reports a death within milliseconds; this
 * finds the deaths that were not reported, and records those that reconciling has not repaired
 * meanwhile.
 *
 * @param deadBefore services that the last round has found dead
 * @returns services that this round has found dead
 */
async function findDeaths(
  context: ReconcilerContext,
  deadBefore: ReadonlySet<string>,
  lookAt: (id: string) => void,
): Promise<Set<string>> {
  const dead = new Set<string>();
  for (const id of await listReachableServices(context.store.db, context.region.code)) {
    if (context.closing.aborted) break;
    if (await context.region.engine.lifecycle.runs(id)) continue;
    dead.add(id);
    if (deadBefore.has(id)) await recordDeath(context, id);
    lookAt(id);
  }
  return dead;
}
