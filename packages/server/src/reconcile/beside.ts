/** Performs operations that run beside all others, and do not change their service. */
import type { OperationStep } from '@howdah/contract';
import type { OperationRow } from '../domain/operation/row.ts';
import { begunStep, endOfStep } from '../domain/operation/steps.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import type { RunStep } from '../engine/run-step.ts';
import type { Log } from '../lib/log.ts';
import type { Round, Rounds } from '../lib/rounds.ts';
import type { RoundName } from '../lib/tuning.ts';
import type { Store } from '../store/database.ts';
import { endOperation, isUnderWay, progressOperation } from '../store/operations.ts';
import { lockService } from '../store/services.ts';

/** How long a stop waits for an interrupted operation to tidy up; the next start does the rest. */
const CLOSE_GRACE_MS = 5000;

export type BesideTools = Readonly<{ store: Store; log: Log; rounds: Rounds }>;

/** A round that performs operations; a stop interrupts the one under way. */
export function createBesideRound(
  { rounds, log }: BesideTools,
  name: RoundName,
  work: (closing: AbortSignal) => Promise<void>,
) {
  const round = rounds.every(name, work, log);
  return {
    start: round.start,
    /** Interrupts what is under way; the next start begins it again. */
    close: () => round.close(CLOSE_GRACE_MS),
  };
}

/** How an operation ended: the problem is null if it succeeded. */
export type BesideResult = { problem: string | null; steps: readonly OperationStep[] };

/**
 * Performs an operation. A delete of the service, and a cancel, interrupt it.
 *
 * @param work returns a problem that it found; null: none
 * @returns null: it was interrupted, or has been ended by others
 */
export async function performBeside(
  { store, log, rounds }: BesideTools,
  operation: OperationRow,
  closing: AbortSignal,
  work: (service: ServiceRow, runStep: RunStep, signal: AbortSignal) => Promise<string | null>,
): Promise<BesideResult | null> {
  const service = await store.db
    .transaction()
    .execute(async (tx) => (await lockService(tx, operation.service_id))?.service ?? null);
  if (service === null || service.deleting) {
    await endOperation(store.db, operation.id, 'failed', 'superseded by delete');
    return null;
  }
  const ended = new AbortController();
  const signal = AbortSignal.any([closing, ended.signal]);
  if (signal.aborted) return null;
  const steps: OperationStep[] = [];
  const watch = interruptOnceEnded({ store, log, rounds }, operation, ended);
  try {
    const runStep = stepsOf({ store, log }, operation, steps, signal);
    return { problem: await work(service, runStep, signal), steps };
  } catch (error) {
    if (signal.aborted || !(await isUnderWay(store.db, operation.id))) return null;
    log.warn({ service: service.id, err: error }, `${operation.kind} failed`);
    return { problem: messageOf(error), steps };
  } finally {
    void watch.close();
  }
}

function interruptOnceEnded(
  { store, log, rounds }: BesideTools,
  { id }: OperationRow,
  ended: AbortController,
): Round {
  const isWanted = async (): Promise<void> => {
    if (!(await isUnderWay(store.db, id))) ended.abort();
  };
  const round = rounds.every('wantedOperations', isWanted, log);
  round.startLater();
  return round;
}

/** Shows each part of the work in its operation. */
function stepsOf(
  { store, log }: Pick<BesideTools, 'store' | 'log'>,
  { id }: OperationRow,
  steps: OperationStep[],
  signal: AbortSignal,
): RunStep {
  // The work goes on without the metadata database: the next step that is saved saves this one too.
  const save = () =>
    progressOperation(store.db, id, steps, null).catch((error: unknown) => {
      if (!signal.aborted) log.warn({ operation: id, err: error }, 'could not show a step');
    });
  return async (name, run) => {
    const step = begunStep(name);
    steps.push(step);
    await save();
    try {
      const detail = await run((line) => {
        step.detail = line;
        void save();
      });
      Object.assign(step, endOfStep('ok', detail));
    } catch (error) {
      Object.assign(step, endOfStep('failed', messageOf(error)));
      throw error;
    } finally {
      if (!signal.aborted) await save();
    }
  };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
