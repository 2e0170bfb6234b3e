/** The part of the role rules that depends on what a change would end: asked inside the transaction, where the tag cannot change any more. */
import { ApiError, denialOfAction, type Action, type Environment } from '@howdah/contract';
import type { Caller } from './change.ts';

/** @param environment of what the action would end. @throws ApiError FORBIDDEN */
export function refuseByRole({ role }: Caller, action: Action, environment: Environment): void {
  const denied = denialOfAction(role, action, environment);
  if (denied !== null) throw new ApiError('FORBIDDEN', denied);
}
