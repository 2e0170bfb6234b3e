/**
 * Role rules for PROD services. They are checked inside the transaction, where the environment
 * can no longer change.
 */
import { ApiError, denialOfAction, type Action, type Environment } from '@howdah/contract';
import type { Caller } from './change.ts';

/**
 * @param environment of the service that the action would take away from its clients.
 *
 * @throws ApiError FORBIDDEN
 */
export function refuseByRole({ role }: Caller, action: Action, environment: Environment): void {
  const denied = denialOfAction(role, action, environment);
  if (denied !== null) throw new ApiError('FORBIDDEN', denied);
}
