/**
 * Performs the operations that verify backups, one at a time in a region and beside all other
 * operations, and begins those that are due. An interrupted verification begins again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { OperationStep } from '@howdah/contract';
import type { RunStep } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import type { OperationRow } from '../domain/operation/row.ts';
import {
  beginOperation,
  dueForVerification,
  endOperation,
  isUnderWay,
  nextVerification,
  progressOperation,
  verificationUnderWay,
} from '../store/operations.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import { lockService } from '../store/services.ts';
import type { Log } from '../lib/log.ts';

const TIMER_MS = 1000;
/** Nothing is due more precisely than this. */
const DUE_EVERY_MS = 30_000;
/** How long a stop waits until a copy is removed; the next start removes what is left. */
const CLOSE_GRACE_MS = 5000;
/** Who asked for a verification by schedule. */
const HOWDAH = 'howdah';

export type VerifierOptions = {
  store: Store;
  region: Region;
  log: Log;
  /** The time between two verifications of a running service. */
  everyMs: number;
  /** Called with the id of a service after its verification, before the operation ends. */
  ended: (id: string) => Promise<void>;
};

type Verifier = Readonly<VerifierOptions> & {
  timer: NodeJS.Timeout | undefined;
  closing: boolean;
  lookedForDueMs: number;
  working: Promise<void>;
  /** Interrupts the verification that is under way. */
  interrupt: AbortController;
};

export function createVerifier(options: VerifierOptions) {
  const verifier: Verifier = {
    ...options,
    timer: undefined,
    closing: false,
    lookedForDueMs: -Infinity,
    working: Promise.resolve(),
    interrupt: new AbortController(),
  };
  return {
    start: () => void tick(verifier),
    /** Interrupts a verification; the next start begins it again. */
    close: async (): Promise<void> => {
      verifier.closing = true;
      clearTimeout(verifier.timer);
      verifier.interrupt.abort();
      await Promise.race([verifier.working, sleep(CLOSE_GRACE_MS, undefined, { ref: false })]);
    },
  };
}

async function tick(verifier: Verifier): Promise<void> {
  verifier.working = round(verifier).catch((error: unknown) =>
    verifier.log.warn({ err: error }, 'a verification was interrupted; trying again'),
  );
  await verifier.working;
  if (!verifier.closing) verifier.timer = setTimeout(() => void tick(verifier), TIMER_MS);
}

async function round(verifier: Verifier): Promise<void> {
  const operation = await nextVerification(verifier.store.db, verifier.region.code);
  await (operation === null ? beginDue(verifier) : verify(verifier, operation));
}

async function beginDue(verifier: Verifier): Promise<void> {
  if (performance.now() - verifier.lookedForDueMs < DUE_EVERY_MS) return;
  verifier.lookedForDueMs = performance.now();
  const { store, region, everyMs } = verifier;
  const id = await dueForVerification(store.db, region.code, everyMs);
  if (id === null) return;
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.deleting || (await verificationUnderWay(tx, id)) !== null)
      return;
    await beginOperation(tx, locked.service, 'verifyBackup', HOWDAH, null);
  });
  // There may be more.
  verifier.lookedForDueMs = -Infinity;
}

async function verify(verifier: Verifier, operation: OperationRow): Promise<void> {
  const { store, region, log, ended } = verifier;
  const service = await store.db
    .transaction()
    .execute(async (tx) => (await lockService(tx, operation.service_id))?.service ?? null);
  if (service === null || service.deleting)
    return endOperation(store.db, operation.id, 'failed', 'superseded by delete');
  verifier.interrupt = new AbortController();
  const { signal } = verifier.interrupt;
  if (verifier.closing) return;
  const watch = interruptOnceEnded(verifier, operation);
  try {
    const { problem } = await region.engine.backups.verify(
      serviceSpec(service),
      stepsOf(verifier, operation),
      signal,
    );
    await ended(service.id);
    const status = problem === undefined ? 'succeeded' : 'failed';
    await endOperation(store.db, operation.id, status, problem ?? null);
  } catch (error) {
    if (signal.aborted || !(await isUnderWay(store.db, operation.id))) return;
    log.warn({ service: service.id, err: error }, 'a backup could not be verified');
    await endOperation(store.db, operation.id, 'failed', messageOf(error));
  } finally {
    clearInterval(watch);
  }
}

/** A delete ends the operation of a verification that is under way. */
function interruptOnceEnded(
  { store, log, interrupt }: Verifier,
  { id, service_id: service }: OperationRow,
): NodeJS.Timeout {
  return setInterval(() => {
    isUnderWay(store.db, id).then(
      (underWay) => (underWay ? undefined : interrupt.abort()),
      (error: unknown) =>
        log.warn({ service, err: error }, 'could not read whether a verification is still wanted'),
    );
  }, TIMER_MS);
}

/** Shows each part of a verification in its operation. */
function stepsOf({ store, log, interrupt }: Verifier, { id }: OperationRow): RunStep {
  const steps: OperationStep[] = [];
  // Without the metadata database for a moment the backup is still good: the next step that is saved saves this one too.
  const save = () =>
    progressOperation(store.db, id, steps, null).catch((error: unknown) => {
      log.warn({ operation: id, err: error }, 'could not show a step of a verification');
    });
  return async (name, run) => {
    const step: OperationStep = {
      name,
      started: new Date().toISOString(),
      finished: null,
      detail: null,
    };
    steps.push(step);
    await save();
    try {
      step.detail = await run();
    } catch (error) {
      step.detail = messageOf(error);
      throw error;
    } finally {
      step.finished = new Date().toISOString();
      if (!interrupt.signal.aborted) await save();
    }
  };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
