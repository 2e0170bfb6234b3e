/**
 * Makes wishes true. It takes "look at service S" and nothing more: when poked, when something watched changed, and by a timer.
 * A look takes the lease, lets the engine converge step by step, and records what was seen; every part of it may be cut short and
 * done again. Forward only: delete is the undo.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OperationStep } from '@howdah/contract';
import type { BeginStep, Engine, Seen, Verdict } from '../engine/engine.ts';
import type { Store, Tx } from '../store/database.ts';
import { claimService, dueServices, LEASE_MS, LeaseLost, lockLeased, makeAllDue, releaseService, renewLease } from '../store/leases.ts';
import { beginOperation, endOperation, progressOperation, type OperationRow } from '../store/operations.ts';
import { changeService, deleteService, lockService, reachableServices, specOf, type ServiceRow } from '../store/services.ts';

/** Services looked at side by side: about what two cores can start at a time (performance.md, section 1, parallel creates). */
const PARALLEL_LOOKS = 8;
/** How often the timer asks for services that are due. */
const TIMER_MS = 1000;
/** A step that takes longer is shown while it is going on. */
const SHOW_AFTER_MS = 250;
/** An operation that takes longer is shown as failing, with what it waits for; it goes on all the same. */
const OPERATION_DEADLINE_MS = 600_000;
/** Waits between attempts double up to this. */
const MAX_BACKOFF_MS = 30_000;
const FIRST_BACKOFF_MS = 500;
/** Who asked for a repair. */
const HOWDAH = 'howdah';

export type Log = {
  info: (facts: object, message: string) => void;
  warn: (facts: object, message: string) => void;
  error: (facts: object, message: string) => void;
};

export type ReconcilerOptions = {
  store: Store;
  engine: Engine;
  log: Log;
  /** A settled service that runs is looked at again after this long. */
  lookAgainMs: number;
  /** For how long a deleted service can be restored. */
  undeleteMs: number;
  /** Called after a service settled, with its row. */
  onSettled: (service: ServiceRow) => void;
};

export function createReconciler({ store, engine, log, lookAgainMs, undeleteMs, onSettled }: ReconcilerOptions) {
  const queue = new Set<string>();
  const looking = new Map<string, Promise<void>>();
  let timer: NodeJS.Timeout | undefined;
  let closing = false;

  /** Asks for a look. A service that is being looked at is looked at once more. */
  const poke = (id: string): void => {
    if (closing) return;
    queue.add(id);
    pump();
  };

  const pump = (): void => {
    for (const id of queue) {
      if (looking.size >= PARALLEL_LOOKS) return;
      if (looking.has(id)) continue;
      queue.delete(id);
      const done = look(id)
        .catch((error: unknown) => log.error({ service: id, err: error }, 'a look ended in an error; it is repeated'))
        .finally(() => {
          looking.delete(id);
          pump();
        });
      looking.set(id, done);
    }
  };

  const look = async (id: string): Promise<void> => {
    const token = randomUUID();
    if (!(await claimService(store.db, id, token))) return;
    const heartbeat = setInterval(() => {
      renewLease(store.db, id, token).catch((error: unknown) => log.warn({ service: id, err: error }, 'could not renew a lease'));
    }, LEASE_MS / 3);
    try {
      const lookAgain = await convergeUntilSettled(id, token);
      await releaseService(store.db, id, token, lookAgain);
    } catch (error) {
      if (error instanceof LeaseLost) return;
      await releaseService(store.db, id, token, MAX_BACKOFF_MS / 10);
      throw error;
    } finally {
      clearInterval(heartbeat);
    }
  };

  /** @returns when to look again, in ms; null: when poked */
  const convergeUntilSettled = async (id: string, token: string): Promise<number | null> => {
    let work = await openWork(id, token);
    for (;;) {
      const verdict = await takeStep(work);
      work = await record(work, verdict);
      if (closing) return 0;
      switch (verdict.outcome) {
        case 'settled':
          // A wish that came in meanwhile has made the service due; what settled was the one before it.
          if (work.service.deleting) return removalDueMs(work.service, undeleteMs);
          if (work.operation !== null) return 0;
          return work.service.power === 'running' ? lookAgainMs : null;
        case 'failed':
          return backoffMs(work.service.attempt);
        case 'again':
          if (verdict.waitMs > 0) await sleep(verdict.waitMs);
      }
    }
  };

  // ── one look's work ────────────────────────────────────────────────────────────────────────────────────────────

  /** The service as the records have it, the operation worked on, and its steps so far. */
  type Work = { id: string; token: string; service: ServiceRow; operation: OperationRow | null; steps: OperationStep[]; savedAtMs: number };

  /** Takes the work up: an operation that was waiting has begun. */
  const openWork = async (id: string, token: string): Promise<Work> =>
    store.db.transaction().execute(async (tx) => {
      const { service, operation } = await lockLeased(tx, id, token);
      if (operation === null || operation.status === 'running') return work(id, token, service, operation);
      const begun = await progressOperation(tx, operation.id, operation.steps, null);
      return work(id, token, await changeService(tx, service, {}, begun), begun);
    });

  const work = (id: string, token: string, service: ServiceRow, operation: OperationRow | null): Work => ({
    id,
    token,
    service,
    operation,
    steps: operation === null ? [] : [...operation.steps],
    savedAtMs: Date.now(),
  });

  const takeStep = async (current: Work): Promise<Verdict> => {
    let show: NodeJS.Timeout | undefined;
    let shown: Promise<unknown> = Promise.resolve();
    const begin: BeginStep = async (name, seen) => {
      await announceFault(current, seen);
      const open = current.steps.at(-1);
      // Tried again after a wait: still the same step.
      if (open?.name === name && open.finished === null) return;
      current.steps.push({ name, started: new Date().toISOString(), finished: null, detail: null });
      show = setTimeout(() => {
        shown = save(current).catch((error: unknown) => log.warn({ service: current.id, err: error }, 'could not show a step'));
      }, SHOW_AFTER_MS);
    };
    try {
      if (isToBeRemoved(current.service, undeleteMs)) return await engine.remove(current.id, begin);
      const verdict = await engine.converge(specOf(current.service), begin);
      if (verdict.outcome !== 'settled') await announceFault(current, verdict.seen);
      return verdict;
    } catch (error) {
      log.error({ service: current.id, err: error }, 'the engine failed in a way it does not know');
      const reason = error instanceof Error ? error.message : String(error);
      return {
        did: current.steps.at(-1)?.name ?? null,
        detail: reason,
        seen: { reachable: false, present: true },
        outcome: 'failed',
        reason,
      };
    } finally {
      clearTimeout(show);
      await shown;
    }
  };

  /** A service that runs by the records but not in truth: its users are told before it is mended. */
  const announceFault = async (current: Work, { reachable }: Seen): Promise<void> => {
    const { service } = current;
    if (current.operation !== null || service.project_id === null || service.deleting || service.power === 'paused' || reachable) return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockLeased(tx, current.id, current.token);
      if (locked.operation === null) Object.assign(current, await openRepair(tx, locked.service));
    });
  };

  const openRepair = async (tx: Tx, service: ServiceRow): Promise<{ service: ServiceRow; operation: OperationRow }> => {
    const repair = await beginOperation(tx, service, 'repair', HOWDAH, null);
    const operation = await progressOperation(tx, repair.id, [], null);
    log.warn({ service: service.id }, 'a service that shall run does not: repairing it');
    return { operation, service: await changeService(tx, service, { reachable: false }, operation) };
  };

  /** Writes the steps so far, so that users see what is going on. */
  const save = async (current: Work): Promise<void> => {
    const { operation } = current;
    if (operation === null) return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockLeased(tx, current.id, current.token);
      if (locked.operation?.id === operation.id) await progressOperation(tx, operation.id, current.steps, operation.error);
    });
    current.savedAtMs = Date.now();
  };

  /** Records a verdict, and reads anew what is wanted. Steps that went well and fast are written with the last one. */
  const record = async (current: Work, verdict: Verdict): Promise<Work> => {
    const open = current.steps.at(-1);
    if (verdict.did !== null && open?.finished === null)
      Object.assign(open, { finished: new Date().toISOString(), detail: verdict.detail });
    const pastDeadline = current.operation !== null && Date.now() - current.operation.created.getTime() > OPERATION_DEADLINE_MS;
    if (verdict.outcome === 'again' && !pastDeadline && Date.now() - current.savedAtMs < SHOW_AFTER_MS) return current;
    const { done, next } = await store.db.transaction().execute((tx) => recordIn(tx, current, verdict, pastDeadline));
    if (done) onSettled(next.service);
    return next;
  };

  type Recorded = { done: boolean; next: Work };

  const recordIn = async (tx: Tx, current: Work, verdict: Verdict, pastDeadline: boolean): Promise<Recorded> => {
    const { service, operation } = await lockLeased(tx, current.id, current.token);
    const seen = { reachable: verdict.seen.reachable && service.power === 'running' };
    // Another wish was recorded meanwhile and has ended this one: what was seen counts, the rest is for the next round.
    if (operation?.id !== current.operation?.id) {
      return { done: false, next: work(current.id, current.token, await changeService(tx, service, seen, operation), operation) };
    }
    switch (verdict.outcome) {
      case 'settled': {
        if (operation !== null) {
          await progressOperation(tx, operation.id, current.steps, null);
          await endOperation(tx, operation.id, 'succeeded', null);
        }
        if (isToBeRemoved(service, undeleteMs)) {
          await deleteService(tx, service.id);
          return { done: true, next: { ...current, operation: null } };
        }
        if (service.deleting && service.deleted_at === null) {
          // It has stopped. From here on nobody sees it; its data waits for a restore, or for the end of the time for one.
          const row = await changeService(tx, service, { reachable: false, deleted_at: new Date(), attempt: 0 }, null);
          return { done: true, next: work(current.id, current.token, row, null) };
        }
        const row = await changeService(tx, service, { ...seen, attempt: 0 }, null);
        return { done: true, next: work(current.id, current.token, row, null) };
      }
      case 'again': {
        const error = pastDeadline
          ? `not done after ${OPERATION_DEADLINE_MS / 60_000} minutes: ${verdict.detail ?? 'working on it'}`
          : null;
        const progressed = operation === null ? null : await progressOperation(tx, operation.id, current.steps, error);
        const row = await changeService(tx, service, seen, progressed);
        return { done: false, next: work(current.id, current.token, row, progressed) };
      }
      case 'failed': {
        log.warn(
          { service: service.id, operation: operation?.kind, reason: verdict.reason, attempt: service.attempt + 1 },
          'a step did not work; it is tried again',
        );
        const steps = current.steps.slice(-MAX_STEPS);
        const failing = operation === null ? null : await progressOperation(tx, operation.id, steps, verdict.reason);
        const row = await changeService(tx, service, { ...seen, attempt: service.attempt + 1 }, failing);
        return { done: false, next: work(current.id, current.token, row, failing) };
      }
    }
  };

  /** A service that the records say can be reached and whose server is gone. */
  const noticeDeath = async (id: string): Promise<void> => {
    if (await engine.runs(id)) return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null) return;
      const { service, operation } = locked;
      const owned = service.project_id !== null && operation === null && service.power === 'running';
      if (owned) await openRepair(tx, service);
      else await changeService(tx, service, { reachable: false }, operation);
    });
  };

  // ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────

  const tick = async (): Promise<void> => {
    try {
      for (const id of await dueServices(store.db, PARALLEL_LOOKS * 4)) poke(id);
    } catch (error) {
      log.warn({ err: error }, 'could not ask for services that are due; asking again');
    }
    if (!closing) timer = setTimeout(() => void tick(), TIMER_MS);
  };

  return {
    poke,
    /** Tells of what died while nobody looked, before anybody is told otherwise; then looks at everything and goes on from there. */
    start: async (): Promise<void> => {
      await Promise.all((await reachableServices(store.db)).map(noticeDeath));
      await makeAllDue(store.db);
      store.listen(poke);
      void tick();
    },
    /** Lets the steps under way end. */
    close: async (): Promise<void> => {
      closing = true;
      clearTimeout(timer);
      queue.clear();
      await Promise.all(looking.values());
    },
  };
}
export type Reconciler = ReturnType<typeof createReconciler>;

/** Whether nothing of a service shall be left: spares at once, others when the time for a restore is over. */
function isToBeRemoved({ deleting, deleted_at: deletedAt, project_id: projectId }: ServiceRow, undeleteMs: number): boolean {
  if (!deleting) return false;
  if (projectId === null || undeleteMs === 0) return true;
  return deletedAt !== null && Date.now() - deletedAt.getTime() >= undeleteMs;
}

/** When a deleted service is to be removed, in ms from now; null: it is gone. */
function removalDueMs({ deleted_at: deletedAt }: ServiceRow, undeleteMs: number): number | null {
  return deletedAt === null ? null : Math.max(1000, deletedAt.getTime() + undeleteMs - Date.now());
}

/** Steps kept of an operation that is tried again and again: the last ones. */
const MAX_STEPS = 100;

/** The wait before the next attempt. */
export function backoffMs(attempt: number): number {
  return Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.min(attempt - 1, 10));
}
