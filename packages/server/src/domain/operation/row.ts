/** An operation as it is in the metadata database. */
import type { OperationKind, OperationStatus, OperationStep } from '@howdah/contract';

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
