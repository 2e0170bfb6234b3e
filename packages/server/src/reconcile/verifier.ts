/**
 * Works on the operations that verify backups, one at a time over the whole installation, beside everything else; and asks for those
 * that are due. What a crash interrupted is begun again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { OperationStep } from '@howdah/contract';
import type { Engine, RunStep } from '../engine/engine.ts';
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
/** How long a stop waits for a copy to be thrown away; what is left the next start throws away. */
const CLOSE_GRACE_MS = 5000;
/** Who asked for a verification by schedule. */
const HOWDAH = 'howdah';

export type VerifierOptions = {
  store: Store;
  engine: Engine;
  log: Log;
  /** The time between two verifications of a running service. */
  everyMs: number;
  /** Called with the id of a service whose verification has come to a result, before its operation ends. */
  ended: (id: string) => Promise<void>;
};

export function createVerifier({ store, engine, log, everyMs, ended }: VerifierOptions) {
  let timer: NodeJS.Timeout | undefined;
  let closing = false;
  let lookedForDueMs = -Infinity;
  let working: Promise<void> = Promise.resolve();
  let cutShort = new AbortController();

  const work = async (operation: OperationRow): Promise<void> => {
    const service = await store.db
      .transaction()
      .execute(async (tx) => (await lockService(tx, operation.service_id))?.service ?? null);
    if (service === null || service.deleting)
      return endOperation(store.db, operation.id, 'failed', 'superseded by delete');
    cutShort = new AbortController();
    if (closing) return;
    const watch = setInterval(() => {
      // Ended by somebody else, that is by a delete.
      isUnderWay(store.db, operation.id).then(
        (underWay) => (underWay ? undefined : cutShort.abort()),
        (error: unknown) =>
          log.warn(
            { service: service.id, err: error },
            'could not ask whether a verification is still wanted',
          ),
      );
    }, TIMER_MS);
    try {
      const { problem } = await engine.verifyBackup(
        serviceSpec(service),
        stepsOf(operation),
        cutShort.signal,
      );
      await ended(service.id);
      await endOperation(
        store.db,
        operation.id,
        problem === undefined ? 'succeeded' : 'failed',
        problem ?? null,
      );
    } catch (error) {
      if (cutShort.signal.aborted || !(await isUnderWay(store.db, operation.id))) return;
      log.warn({ service: service.id, err: error }, 'a backup could not be verified');
      await endOperation(
        store.db,
        operation.id,
        'failed',
        error instanceof Error ? error.message : String(error),
      );
    } finally {
      clearInterval(watch);
    }
  };

  /** Shows each part of a verification in its operation. */
  const stepsOf = ({ id }: OperationRow): RunStep => {
    const steps: OperationStep[] = [];
    // Records that are away for a moment are no reason to doubt a backup: the next step that is shown shows this one too.
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
        step.detail = error instanceof Error ? error.message : String(error);
        throw error;
      } finally {
        step.finished = new Date().toISOString();
        if (!cutShort.signal.aborted) await save();
      }
    };
  };

  const beginDue = async (): Promise<void> => {
    if (performance.now() - lookedForDueMs < DUE_EVERY_MS) return;
    lookedForDueMs = performance.now();
    const id = await dueForVerification(store.db, everyMs);
    if (id === null) return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (
        locked === null ||
        locked.service.deleting ||
        (await verificationUnderWay(tx, id)) !== null
      )
        return;
      await beginOperation(tx, locked.service, 'verifyBackup', HOWDAH, null);
    });
    // There may be more.
    lookedForDueMs = -Infinity;
  };

  const round = async (): Promise<void> => {
    const operation = await nextVerification(store.db);
    await (operation === null ? beginDue() : work(operation));
  };

  const tick = async (): Promise<void> => {
    working = round().catch((error: unknown) =>
      log.warn({ err: error }, 'a verification was interrupted; trying again'),
    );
    await working;
    if (!closing) timer = setTimeout(() => void tick(), TIMER_MS);
  };

  return {
    start: () => void tick(),
    /** Cuts a verification short, which the next start begins again. */
    close: async (): Promise<void> => {
      closing = true;
      clearTimeout(timer);
      cutShort.abort();
      await Promise.race([working, sleep(CLOSE_GRACE_MS, undefined, { ref: false })]);
    },
  };
}
