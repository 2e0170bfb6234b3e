/** The document of an operation, as the API returns it. */
import type { Operation } from '@howdah/contract';
import type { OperationRow } from './row.ts';
import { stepDocument } from './steps.ts';

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
