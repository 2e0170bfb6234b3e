/**
 * Rules for PROD services. They are checked inside the transaction, where the environment can no
 * longer change.
 */
import {
  ApiError,
  denialOfAction,
  describeEffects,
  requiresName,
  type Action,
  type Environment,
} from '@howdah/contract';
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

/**
 * Refuses an action on a PROD service without its name, or with another one. A dry run needs none.
 *
 * @param environment of what the action would take away
 * @throws ApiError INVALID_REQUEST
 */
export function refuseUnconfirmed(
  { confirm, dryRun }: Caller,
  action: Action,
  name: string,
  environment: Environment,
): void {
  if (dryRun || environment !== 'PROD' || confirm === name) return;
  if (confirm === null && !requiresName(action, environment)) return;
  const found = confirm === null ? '' : `found ${JSON.stringify(confirm.slice(0, 128))}; `;
  throw new ApiError(
    'INVALID_REQUEST',
    `confirm: ${found}${action} ${describeEffects(action)}, so a PROD service needs its name: ` +
      JSON.stringify(name),
  );
}
