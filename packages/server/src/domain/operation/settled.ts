/** Whether an operation succeeded, once its service has its desired state. */
import type { OperationStep } from '@howdah/contract';
import type { OperationRow } from './row.ts';
import { DRILL_STEP } from '../../engine/engine.ts';

/** Why the operation of a settled service failed; null: it succeeded. */
export function problemOfSettledOperation(
  kind: OperationRow['kind'],
  steps: readonly OperationStep[],
): string | null {
  const rehearsed = steps.some(({ name, finished }) => name === DRILL_STEP && finished !== null);
  return kind === 'drill' && !rehearsed ? 'drill interrupted; run it again' : null;
}
