/** The status of a service, and the transitions that the contract allows. */
import {
  type LiveStatus,
  REPLICA_SET_TRANSITIONS,
  statusOf,
  statusOfReplicaSet,
  TRANSITIONS,
} from '@howdah/contract';
import type { ServiceRow } from './row.ts';
import type { OperationRow } from '../operation.ts';

/** The contract does not know this change of a status: a defect of Howdah. */
export class UnknownTransition extends Error {}

/** The status of a service with this unfinished operation. */
export function serviceStatus(service: ServiceRow, operation: OperationRow | null): LiveStatus {
  if (service.deleting) return 'DELETING';
  const underWay =
    operation === null
      ? null
      : {
          kind: operation.kind,
          begun: operation.status === 'running',
          failing: operation.error !== null,
        };
  return (service.parent_id === null ? statusOf : statusOfReplicaSet)(
    service.power,
    service.reachable,
    underWay,
  );
}

/**
 * @throws UnknownTransition when the contract does not know the change of the status. A spare has
 * no status that users see.
 */
export function refuseUnknownTransition(before: ServiceRow, after: LiveStatus): void {
  const transitions = before.parent_id === null ? TRANSITIONS : REPLICA_SET_TRANSITIONS;
  if (after === before.status || before.project_id === null) return;
  if (transitions[before.status].includes(after)) return;
  throw new UnknownTransition(
    `service ${before.id}: ${before.status} → ${after} is not a transition of the contract`,
  );
}
