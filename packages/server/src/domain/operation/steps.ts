/** How the steps of an operation went. */
import type { OperationStep, StepOutcome } from '@howdah/contract';
import type { OperationRow, RecordedStep } from './row.ts';

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
