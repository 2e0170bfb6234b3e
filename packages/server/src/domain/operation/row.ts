/** An operation as it is in the metadata database. */
import type { OperationKind, OperationStatus, OperationStep } from '@howdah/contract';

export type OperationRow = {
  id: string;
  project_id: string | null;
  service_id: string;
  kind: OperationKind;
  status: OperationStatus;
  requested_by: string;
  steps: OperationStep[];
  error: string | null;
  created: Date;
  finished: Date | null;
};
