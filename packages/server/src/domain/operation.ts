/** An operation as it is in the metadata database. */
import type {
  OperationKind,
  OperationStatus,
  OperationStep,
  StepOutcome,
  Operation,
} from '@howdah/contract';
import type { ServiceRow } from './service/row.ts';
import { DRILL_STEP } from '../engine/engine.ts';

/**
 * The request of a runBackup: whether the backup must be a full one; of a verifyBackup: whether it
 * is the one in the repositories; of a tryUpgrade: the major version that is tried.
 */
export type OperationRequest = { full: boolean } | { repository: true } | { major: number };

/** A step as it is recorded; those of older versions have no outcome. */
export type RecordedStep = Omit<OperationStep, 'outcome'> & Partial<Pick<OperationStep, 'outcome'>>;

export type OperationRow = {
  id: string;
  project_id: string | null;
  service_id: string;
  kind: OperationKind;
  status: OperationStatus;
  requested_by: string;
  steps: RecordedStep[];
  /** The request, where the row of the service does not say it; null: it says all. */
  request: OperationRequest | null;
  /** The parts that it does not carry over, in words for users; null: none. */
  not_carried: string[] | null;
  error: string | null;
  created: Date;
  finished: Date | null;
};

// How the steps of an operation went.

/** The record of a step that begins now. */
export const begunStep = (name: string): OperationStep => ({
  name,
  started: new Date().toISOString(),
  finished: null,
  outcome: 'running',
  detail: null,
});

/** The change of the record of a step that ends now. */
export const endOfStep = (
  outcome: Extract<StepOutcome, 'ok' | 'failed'>,
  detail: string | null,
): Pick<OperationStep, 'finished' | 'outcome' | 'detail'> => ({
  finished: new Date().toISOString(),
  outcome,
  detail,
});

type Ended = Pick<OperationRow, 'status' | 'error' | 'finished'>;

/** A step as the API returns it. @param isLast whether no other step followed it */
export function stepDocument(operation: Ended, step: RecordedStep, isLast: boolean): OperationStep {
  return { ...step, outcome: outcomeOf(operation, step, isLast) };
}

function outcomeOf(operation: Ended, step: RecordedStep, isLast: boolean): StepOutcome {
  if (step.finished === null) {
    if (operation.finished === null) return isLast ? 'running' : 'interrupted';
    return operation.status === 'succeeded' ? 'ok' : 'interrupted';
  }
  if (step.outcome !== undefined) return step.outcome;
  // Recorded by an older version: the error of the operation names the step that failed.
  return isLast && operation.error === `${step.name}: ${step.detail}` ? 'failed' : 'ok';
}

// How long an operation may take before it is shown as failing.

const OPERATION_DEADLINE_MS = 600_000;
/** A copy takes as long as its data is large. */
const COPIED_GIGABYTE_MS = 30_000;

/**
 * An operation that takes longer is shown as failing, with what it waits for; it still continues.
 */
export const deadlineMs = (
  kind: OperationKind,
  { storage_gb: storageGb }: Pick<ServiceRow, 'storage_gb'>,
): number => OPERATION_DEADLINE_MS + (kind === 'move' ? storageGb * COPIED_GIGABYTE_MS : 0);

// The document of an operation, as the API returns it.

/** @param remainingSeconds an estimate; null: unknown */
export function operationDocument(
  row: OperationRow,
  remainingSeconds: number | null = null,
): Operation {
  return {
    id: row.id,
    kind: row.kind,
    service_id: row.service_id,
    status: row.status,
    requested_by: row.requested_by,
    steps: row.steps.map((step, index) => stepDocument(row, step, index === row.steps.length - 1)),
    ...(row.not_carried === null ? {} : { not_carried: row.not_carried }),
    ...(row.error === null ? {} : { error: row.error }),
    created: row.created.toISOString(),
    finished: row.finished === null ? null : row.finished.toISOString(),
    ...(remainingSeconds === null ? {} : { remaining_seconds: remainingSeconds }),
  };
}

// How long an operation still takes.

/**
 * @param past durations of earlier operations of the kind
 * @param elapsed since it was accepted; all in seconds
 * @returns null: unknown, since it is the first of its kind or takes longer than any before
 */
export function remainingSeconds(
  past: { median: number; longest: number } | null,
  elapsed: number,
): number | null {
  if (past === null || elapsed > past.longest) return null;
  const left = (elapsed <= past.median ? past.median : past.longest) - elapsed;
  return Math.round(left * 10) / 10;
}

// Whether an operation succeeded, once its service has its desired state.

/** Why the operation of a settled service failed; null: it succeeded. */
export function problemOfSettledOperation(
  kind: OperationRow['kind'],
  steps: readonly RecordedStep[],
  { upgrade, move }: Pick<ServiceRow, 'upgrade' | 'move'>,
): string | null {
  if (kind === 'move' && move?.state === 'abort') return move.problem;
  if (
    (kind === 'upgrade' || kind === 'undoUpgrade' || kind === 'reset') &&
    upgrade !== null &&
    upgrade.problem !== null
  )
    return upgrade.problem;
  const rehearsed = steps.some(({ name, finished }) => name === DRILL_STEP && finished !== null);
  return kind === 'drill' && !rehearsed ? 'drill interrupted; run it again' : null;
}

// Whether the work of an operation has begun.

/** A drill begins when the reconciler has removed its request; before, other work goes first. */
export function hasOperationBegun(operation: OperationRow, service: ServiceRow): boolean {
  return operation.kind === 'drill' ? service.drill === null : operation.status !== 'queued';
}
