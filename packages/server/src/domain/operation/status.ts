/** Whether the work of an operation has begun. */
import type { OperationRow } from './row.ts';
import type { ServiceRow } from '../service/row.ts';

/** A drill begins when the reconciler has removed its request; before, other work goes first. */
export function hasOperationBegun(operation: OperationRow, service: ServiceRow): boolean {
  return operation.kind === 'drill' ? service.drill === null : operation.status !== 'queued';
}
