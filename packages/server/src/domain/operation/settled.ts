/** Whether an operation succeeded, once its service has its desired state. */
import type { ServiceRow } from '../service/row.ts';
import type { OperationRow, RecordedStep } from './row.ts';
import { DRILL_STEP } from '../../engine/engine.ts';

/** Why the operation of a settled service failed; null: it succeeded. */
export function problemOfSettledOperation(
  kind: OperationRow['kind'],
  steps: readonly RecordedStep[],
  { upgrade, move }: Pick<ServiceRow, 'upgrade' | 'move'>,
): string | null {
  if (kind === 'move' && move?.state === 'abort') return move.problem;
  if (
    (kind === 'upgrade' || kind === 'undoUpgrade') &&
    upgrade !== null &&
    upgrade.problem !== null
  )
    return upgrade.problem;
  const rehearsed = steps.some(({ name, finished }) => name === DRILL_STEP && finished !== null);
  return kind === 'drill' && !rehearsed ? 'drill interrupted; run it again' : null;
}
