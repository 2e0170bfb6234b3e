/**
 * Reconciles services with their desired state, one at a time: when woken, when something watched changed, and by a timer.
 * A look takes the lease, lets the engine converge step by step, and records what was seen; every part of it may be interrupted and
 * done again. Forward only: delete is the undo.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OperationStep } from '@howdah/contract';
import type { OperationRow } from '../domain/operation/row.ts';
import { problemOfSettledOperation } from '../domain/operation/settled.ts';
import { backoffMs, MAX_BACKOFF_MS } from '../domain/service/backoff.ts';
import { isRestoreOver, msUntilRemoval, mustBeRemoved } from '../domain/service/removal.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import { serviceStatus } from '../domain/service/status.ts';
import {
  type BeginStep,
  DRILL_STEP,
  type Engine,
  type Seen,
  type Verdict,
} from '../engine/engine.ts';
import type { Log } from '../lib/log.ts';
import type { Store } from '../store/database.ts';
import {
  claimService,
  dueServices,
  givenBack,
  LEASE_MS,
  LeaseLost,
  lockLeased,
  makeAllDue,
  releaseService,
  renewLease,
} from '../store/leases.ts';
import {
  beginOperation,
  endOperation,
  HOWDAH,
  progressOperation,
  takeUpOperation,
} from '../store/operations.ts';
import { haveSetsOperations } from '../store/replica-sets.ts';
import { listParentsOfUnfinishedForks, listReachableServices } from '../store/service-lists.ts';
import { changeService, deleteServiceRow, lockService, removeSets } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';
import { releaseAddresses } from '../store/vpc-addresses.ts';

/** Services looked at side by side: what two cores can start at a time (docs/performance.md, section 1, parallel creates), and some that wait for the disk. */
const PARALLEL_LOOKS = 12;

/** How often records that are away are tried again. */
const METADATA_RETRY_MS = 500;

/** A look that has nothing to do but wait gives its place up after this long: what it waits for may need one. */
const GIVE_WAY_AFTER_MS = 3000;

/** How often the timer asks for services that are due. */
const TIMER_MS = 1000;

/** How often it is looked for deaths that nobody has told of. */
const DEATHS_EVERY_MS = 30_000;

/** A step that takes longer is shown while it is going on. */
const SHOW_AFTER_MS = 250;

/** An operation that takes longer is shown as failing, with what it waits for; it goes on all the same. */
const OPERATION_DEADLINE_MS = 600_000;

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

export function createReconciler(options: ReconcilerOptions) {
  const { store, engine, log, undeleteMs, onSettled } = options;
  const queue = new Set<string>();
  const looking = new Map<string, Promise<void>>();
  let timer: NodeJS.Timeout | undefined;
  let deathTimer: NodeJS.Timeout | undefined;
  let closing = false;

  /** Asks for a look. A service that is being looked at is looked at once more. */
  const wake = (id: string): void => {
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
        .catch((error: unknown) => {
          log.error({ service: id, err: error }, 'observing a service failed; trying again');
          // Where the metadata database could not be asked, they do not know that anybody wanted it.
          setTimeout(() => wake(id), METADATA_RETRY_MS).unref();
        })
        .finally(() => {
          looking.delete(id);
          pump();
        });
      looking.set(id, done);
    }
  };

  const look = async (id: string): Promise<void> => {
    const token = randomUUID();
    let heartbeat: NodeJS.Timeout | undefined;
    try {
      const begun = await openWork(id, token);
      if (begun === null) return;
      let renewing = false;
      heartbeat = setInterval(() => {
        // Records that do not answer are asked once, not on one connection more each time.
        if (renewing) return;
        renewing = true;
        renewLease(store.db, id, token)
          .catch((error: unknown) =>
            log.warn({ service: id, err: error }, 'could not renew a lease'),
          )
          .finally(() => (renewing = false));
      }, LEASE_MS / 3);
      await convergeUntilReleased(begun);
    } catch (error) {
      if (error instanceof LeaseLost) return;
      // That it was taken may be true without our having heard of it.
      await giveBack(id, token);
      throw error;
    } finally {
      clearInterval(heartbeat);
    }
  };

  /** Gives a lease back after an error; while the metadata database is away again and again, until it has ended by itself. */
  const giveBack = async (id: string, token: string): Promise<void> => {
    for (const endMs = Date.now() + LEASE_MS; Date.now() < endMs; await sleep(METADATA_RETRY_MS)) {
      try {
        return await releaseService(store.db, id, token, MAX_BACKOFF_MS / 10);
      } catch (error) {
        log.warn({ service: id, err: error }, 'could not release a lease');
        if (closing) return;
      }
    }
  };

  /** Step by step, until there is nothing to do now. */
  const convergeUntilReleased = async (begun: Work): Promise<void> => {
    let work: Work | null = begun;
    const patientUntilMs = Date.now() + GIVE_WAY_AFTER_MS;
    while (work !== null) {
      const verdict = await takeStep(work);
      const waitMs = verdict.outcome === 'again' ? verdict.waitMs : 0;
      work = await record(work, verdict, waitMs > 0 && Date.now() > patientUntilMs);
      if (work !== null && waitMs > 0) await sleep(waitMs);
    }
  };

  // ── one look's work ────────────────────────────────────────────────────────────────────────────────────────────

  /** The service as the metadata database has it, the operation worked on, and its steps so far. */
  type Work = {
    id: string;
    token: string;
    service: ServiceRow;
    operation: OperationRow | null;
    steps: OperationStep[];
    savedAtMs: number;
  };

  /** Takes the lease and the work up: an operation that was waiting has begun. Null when somebody else is at it. */
  const openWork = async (id: string, token: string): Promise<Work | null> => {
    const taken = await store.db.transaction().execute(async (tx) => {
      const service = await claimService(tx, id, token);
      if (service === null) return null;
      const operation = await takeUpOperation(tx, service);
      const seen = serviceStatus(service, operation) === service.status;
      return work(
        id,
        token,
        seen ? service : await changeService(tx, service, {}, operation),
        operation,
      );
    });
    if (taken === null || !isRestoreOver(taken.service, undeleteMs)) return taken;
    // Nobody's from here on, for certain: a restore finds nothing any more, however long the removal takes.
    return store.db.transaction().execute(async (tx) => {
      const { service, operation } = await lockLeased(tx, id, token, taken.operation);
      if (!isRestoreOver(service, undeleteMs)) return work(id, token, service, operation);
      return work(id, token, await changeService(tx, service, { project_id: null }, null), null);
    });
  };

  const work = (
    id: string,
    token: string,
    service: ServiceRow,
    operation: OperationRow | null,
  ): Work => ({
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
        shown = save(current).catch((error: unknown) =>
          log.warn({ service: current.id, err: error }, 'could not show a step'),
        );
      }, SHOW_AFTER_MS);
    };
    try {
      if (await waitsForSets(current.service)) return SETS_FIRST;
      if (
        mustBeRemoved(current.service, undeleteMs) &&
        (await listParentsOfUnfinishedForks(store.db)).has(current.id)
      )
        return FORKS_FIRST;
      if (mustBeRemoved(current.service, undeleteMs))
        return await engine.remove(current.id, current.service.parent_id, begin);
      const verdict = await engine.converge(serviceSpec(current.service), begin);
      if (verdict.outcome === 'settled' && (await waitsForMoves(current)))
        return {
          ...verdict,
          detail: 'its read replica sets are on their way',
          outcome: 'again',
          waitMs: WITH_SETS_MS,
        };
      if (verdict.outcome !== 'settled') await announceFault(current, verdict.seen);
      return verdict;
    } catch (error) {
      log.error({ service: current.id, err: error }, 'unexpected engine error');
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

  /** The read replica sets of a service stop, or are removed, before it is. */
  const waitsForSets = async (service: ServiceRow): Promise<boolean> => {
    const { id, power, deleting, read_replica_sets: sets } = service;
    if (sets.length === 0 || (power === 'running' && !deleting)) return false;
    if (mustBeRemoved(service, undeleteMs))
      await store.db.transaction().execute((tx) => removeSets(tx, id));
    return haveSetsOperations(store.db, id);
  };

  /** A service has moved into its VPC, or out of one, once its read replica sets have: its address is theirs too. */
  const waitsForMoves = async ({ id, service, operation }: Work): Promise<boolean> =>
    service.read_replica_sets.length > 0 &&
    (operation?.kind === 'attachToVPC' || operation?.kind === 'detachFromVPC') &&
    haveSetsOperations(store.db, id);

  /** A service that runs by the metadata database but not in truth: its status says so before it is repaired. */
  const announceFault = async (current: Work, { reachable }: Seen): Promise<void> => {
    const { service } = current;
    if (
      current.operation !== null ||
      service.project_id === null ||
      service.deleting ||
      service.power === 'paused' ||
      reachable
    )
      return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockLeased(tx, current.id, current.token, null);
      if (locked.operation === null) Object.assign(current, await openRepair(tx, locked.service));
    });
  };

  const openRepair = async (
    tx: Tx,
    service: ServiceRow,
  ): Promise<{ service: ServiceRow; operation: OperationRow }> => {
    const repair = await beginOperation(tx, service, 'repair', HOWDAH, null);
    const operation = await progressOperation(tx, repair.id, [], null);
    log.warn({ service: service.id }, 'a service that must run does not run: repairing it');
    return {
      operation,
      service: await changeService(tx, service, { reachable: false }, operation),
    };
  };

  /** Writes the steps so far, so that users see what is going on. */
  const save = async (current: Work): Promise<void> => {
    const { operation } = current;
    if (operation === null) return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockLeased(tx, current.id, current.token, operation);
      if (locked.operation?.id === operation.id)
        await progressOperation(tx, operation.id, current.steps, operation.error);
    });
    current.savedAtMs = Date.now();
  };

  /**
   * Records a verdict, and reads the desired state again. Steps that went well and fast are written with the last one.
   *
   * @param giveWay whether to go on later
   * @returns what to go on with; null: the lease was given back
   */
  const record = async (
    current: Work,
    verdict: Verdict,
    giveWay: boolean,
  ): Promise<Work | null> => {
    const open = current.steps.at(-1);
    if (verdict.did !== null && open?.finished === null)
      Object.assign(open, { finished: new Date().toISOString(), detail: verdict.detail });
    const pastDeadline =
      current.operation !== null &&
      Date.now() - current.operation.created.getTime() > OPERATION_DEADLINE_MS;
    const fast =
      verdict.outcome === 'again' &&
      !pastDeadline &&
      Date.now() - current.savedAtMs < SHOW_AFTER_MS;
    if (fast && !closing && !giveWay) return current;
    const { settled, next, leaves } = await store.db
      .transaction()
      .execute((tx) => recordIn(tx, current, verdict, pastDeadline, closing || giveWay));
    if (settled) onSettled(next.service);
    return leaves ? null : next;
  };

  /** leaves: the lease was given back. */
  type Recorded = { settled: boolean; next: Work; leaves: boolean };

  const recordIn = async (
    tx: Tx,
    current: Work,
    found: Verdict,
    pastDeadline: boolean,
    giveWay: boolean,
  ): Promise<Recorded> => {
    const { id, token } = current;
    const { service, operation } = await lockLeased(tx, id, token, current.operation);
    // Of a read replica set: its service has taken it along meanwhile.
    const elsewhere =
      found.outcome === 'settled' &&
      (service.vpc_id !== current.service.vpc_id ||
        // Purged meanwhile: it has stopped, and its data is there still.
        mustBeRemoved(service, undeleteMs) !== mustBeRemoved(current.service, undeleteMs));
    const verdict: Verdict = elsewhere ? { ...found, outcome: 'again', waitMs: 0 } : found;
    const seen = { reachable: verdict.seen.reachable && service.power === 'running' };

    /** There is more to do now. */
    const goOn = async (
      change: ServiceChange,
      underWay: OperationRow | null,
    ): Promise<Recorded> => {
      const row = await changeService(
        tx,
        service,
        { ...change, ...(giveWay ? givenBack(service, 0) : {}) },
        underWay,
      );
      return { settled: false, next: work(id, token, row, underWay), leaves: giveWay };
    };
    /** Until it is time to look again; null: until it is woken. */
    const leave = async (
      change: ServiceChange,
      underWay: OperationRow | null,
      lookAgainMs: number | null,
    ): Promise<Recorded> => {
      const row = await changeService(
        tx,
        service,
        { ...change, ...givenBack(service, giveWay ? 0 : lookAgainMs) },
        underWay,
      );
      return {
        settled: verdict.outcome === 'settled',
        next: work(id, token, row, underWay),
        leaves: true,
      };
    };

    // Another desired state was recorded meanwhile: the observation counts, then the reconciler goes on with the new one.
    if (operation?.id !== current.operation?.id) return goOn(seen, operation);
    switch (verdict.outcome) {
      case 'settled': {
        if (operation !== null) {
          const problem = problemOfSettledOperation(operation.kind, current.steps);
          await endOperation(
            tx,
            operation.id,
            problem === null ? 'succeeded' : 'failed',
            problem,
            current.steps,
          );
        }
        if (mustBeRemoved(service, undeleteMs)) {
          await releaseAddresses(tx, service.id, null);
          await deleteServiceRow(tx, service);
          return { settled: true, next: { ...current, operation: null }, leaves: true };
        }
        if (service.deleting) {
          // It has stopped. From here on nobody sees it; its data waits for a restore, or for the end of the time for one.
          await releaseAddresses(tx, service.id, service.vpc_id);
          const deleted = { deleted_at: service.deleted_at ?? new Date() };
          return leave(
            { ...deleted, reachable: false, attempt: 0 },
            null,
            msUntilRemoval({ ...service, ...deleted }, undeleteMs),
          );
        }
        // Whatever was asked for, it is in the desired network and in no other.
        if (operation !== null && operation.kind !== 'create')
          await releaseAddresses(tx, service.id, service.vpc_id);
        return leave(
          { ...seen, attempt: 0 },
          null,
          service.power === 'running' ? options.lookAgainMs : null,
        );
      }
      case 'again': {
        const error = pastDeadline
          ? `not done after ${OPERATION_DEADLINE_MS / 60_000} minutes: ${verdict.detail ?? 'working on it'}`
          : null;
        return goOn(
          seen,
          operation === null
            ? null
            : await progressOperation(tx, operation.id, current.steps, error),
        );
      }
      case 'failed': {
        const attempt = service.attempt + 1;
        log.warn(
          { service: service.id, operation: operation?.kind, reason: verdict.reason, attempt },
          'a step failed; trying again',
        );
        const steps = current.steps.slice(-MAX_STEPS);
        if (operation?.kind === 'drill' && verdict.did === DRILL_STEP) {
          // It is not done again; what it has left undone is repaired.
          await endOperation(tx, operation.id, 'failed', verdict.reason, steps);
          return leave({ ...seen, attempt: 0 }, null, 0);
        }
        const failing =
          operation === null
            ? null
            : await progressOperation(tx, operation.id, steps, verdict.reason);
        return leave({ ...seen, attempt }, failing, backoffMs(attempt));
      }
    }
  };

  /** A service that the metadata database say can be reached and whose server is gone. */
  const noticeDeath = async (id: string): Promise<void> => {
    if (await engine.runs(id)) return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null) return;
      const { service, operation } = locked;
      const owned =
        service.project_id !== null && operation === null && service.power === 'running';
      if (owned) await openRepair(tx, service);
      else await changeService(tx, service, { reachable: false }, operation);
    });
  };

  // ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────

  const tick = async (): Promise<void> => {
    try {
      for (const id of await dueServices(store.db, PARALLEL_LOOKS * 4)) wake(id);
    } catch (error) {
      log.warn({ err: error }, 'could not ask for services that are due; asking again');
    }
    if (!closing) timer = setTimeout(() => void tick(), TIMER_MS);
  };

  /**
   * A death tells of itself within milliseconds. One that did not, for whatever reason, is found here; where the look that it asks for does not
   * get on, users are told.
   */
  const lookForDeaths = async (deadBefore: ReadonlySet<string>): Promise<void> => {
    const dead = new Set<string>();
    try {
      for (const id of await listReachableServices(store.db)) {
        if (closing) return;
        if (await engine.runs(id)) continue;
        dead.add(id);
        if (deadBefore.has(id)) await noticeDeath(id);
        wake(id);
      }
    } catch (error) {
      log.warn({ err: error }, 'could not look for services that died; looking again');
    }
    if (!closing) deathTimer = setTimeout(() => void lookForDeaths(dead), DEATHS_EVERY_MS);
  };

  return {
    wake,
    /** Whether so many services are looked at that what can wait should. */
    isCrowded: (): boolean => looking.size >= PARALLEL_LOOKS / 2,
    /** Tells of what died while nobody looked, before anybody is told otherwise; then looks at everything and goes on from there. */
    start: async (): Promise<void> => {
      await Promise.all((await listReachableServices(store.db)).map(noticeDeath));
      await makeAllDue(store.db);
      // What a lost notification asked for, the timer finds.
      store.listen('howdah_service', (id) => (id === null ? undefined : wake(id)));
      void tick();
      void lookForDeaths(new Set());
    },
    /** Lets the steps under way end. */
    close: async (): Promise<void> => {
      closing = true;
      clearTimeout(timer);
      clearTimeout(deathTimer);
      queue.clear();
      await Promise.all(looking.values());
    },
  };
}

export type Reconciler = ReturnType<typeof createReconciler>;

/** How often a service that waits for its sets looks at them. */
const WITH_SETS_MS = 50;

const SETS_FIRST: Verdict = {
  did: null,
  detail: 'its read replica sets go first',
  seen: { reachable: false, present: true },
  outcome: 'again',
  waitMs: WITH_SETS_MS,
};

const FORKS_FIRST: Verdict = { ...SETS_FIRST, detail: 'it is being forked', waitMs: 500 };

/** Steps kept of an operation that is tried again and again: the last ones. */
const MAX_STEPS = 100;
