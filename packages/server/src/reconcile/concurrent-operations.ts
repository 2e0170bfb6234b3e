/** Performs operations that run beside all others, and do not change their service. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { OperationStep } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { type OperationRow, begunStep, endOfStep } from '../domain/operation.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import type { RunStep } from '../engine/run-step.ts';
import type { Log } from '../lib/log.ts';
import type { Round, Rounds } from '../lib/rounds.ts';
import type { RoundName } from '../lib/tuning.ts';
import type { Store } from '../store/database.ts';
import { endOperation, isUnderWay, progressOperation } from '../store/operations.ts';
import { lockService } from '../store/services.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import type { Region } from '../engine/regions.ts';
import { listBeside } from '../store/concurrent-operations.ts';

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
type BesideResult = { problem: string | null; steps: readonly OperationStep[] };

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

// Work of a service that may take longer than a round should.

/** Why work is not done. */
export const UNDER_WAY = 'it is under way';

/**
 * Runs work beside the rounds of its service, once at a time. A tenant can make it take long, and
 * has no place of the reconciler meanwhile.
 *
 * @param waitMs how long a round waits for it: usually it is done by then
 * @returns why it is not done; null: it is
 */
export function createBesideRounds(waitMs: number) {
  const attempts = new Map<string, Attempt>();
  const begin = (id: string, work: () => Promise<void>): Attempt => {
    const ending = async (): Promise<string | null> => {
      try {
        await work();
        return null;
      } catch (error) {
        attempt.hasFailed = true;
        return messageOf(error);
      }
    };
    const attempt: Attempt = { hasFailed: false, result: Promise.resolve(null) };
    attempt.result = ending();
    attempts.set(id, attempt);
    return attempt;
  };
  return {
    run: async (id: string, work: () => Promise<void>): Promise<string | null> => {
      const before = attempts.get(id);
      // The reason of a failure may be gone since: the round before may be long ago.
      const attempt = before === undefined || before.hasFailed ? begin(id, work) : before;
      const waiting = new AbortController();
      const late = sleep(waitMs, UNDER_WAY, { signal: waiting.signal }).catch(() => UNDER_WAY);
      const problem = await Promise.race([attempt.result, late]);
      waiting.abort();
      if (problem !== UNDER_WAY) attempts.delete(id);
      return problem;
    },
    /** Work that is done, or under way, is no longer of use: the next call begins it again. */
    forget: (id: string): void => void attempts.delete(id),
  };
}

/** `hasFailed`: it has ended, with a reason. */
type Attempt = { result: Promise<string | null>; hasFailed: boolean };

// Performs the operations that try upgrades, one at a time in a region. A tenant can make each
// last, so no verification waits for one.

type TrialsOptions = BesideTools & Readonly<{ region: Region }>;

export function createTrials(options: TrialsOptions) {
  return createBesideRound(options, 'upgradeTrials', (closing) => round(options, closing));
}

async function round(options: TrialsOptions, closing: AbortSignal): Promise<void> {
  const { store, region } = options;
  const [operation] = await listBeside(store.db, region.code, 'tryUpgrade');
  if (operation === undefined) return;
  const { request } = operation;
  const result = await performBeside(
    options,
    operation,
    closing,
    async (service, runStep, signal) => {
      if (request === null || !('major' in request)) return 'it names no version';
      const { upgrades } = region.engine;
      if ('why' in upgrades) return upgrades.why;
      await upgrades.tryUpgrade(serviceSpec(service), request.major, runStep, signal);
      return null;
    },
  );
  if (result === null) return;
  const status = result.problem === null ? 'succeeded' : 'failed';
  await endOperation(store.db, operation.id, status, result.problem);
}
