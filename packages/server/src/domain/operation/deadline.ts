/** How long an operation may take before it is shown as failing. */
import type { OperationKind } from '@howdah/contract';
import type { ServiceRow } from '../service/row.ts';

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
