/** When services are deleted by themselves, and how many a key may have made. */
import { ALLOWED, ApiError, refusal, type SetExpiryBody } from '@howdah/contract';
import { changedLifetime } from '../domain/service/lifetime.ts';
import { countServicesMadeBy, lockServicesMadeBy } from '../store/expiry.ts';
import { recordOperation } from '../store/operations.ts';
import { changeService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';
import { makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { lockOwnService } from './service-rules.ts';

/** Sets when a service expires; done when it is answered. */
export function setExpiry(
  { store }: ControlContext,
  caller: Caller,
  id: string,
  body: SetExpiryBody,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    if (ALLOWED[service.status].setExpiry !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('setExpiry', service.status));
    const lifetime = changedLifetime(caller, service, body, Date.now());
    const operationId = await recordOperation(tx, service, 'setExpiry', caller);
    const row = await changeService(tx, service, lifetime, operation);
    return { doc: row.doc, operationId };
  });
}

/**
 * Refuses services beyond the number that their key may have. Concurrent calls of the key wait.
 *
 * @param more how many are made
 * @throws ApiError LIMIT_EXCEEDED
 */
export async function keepWithinKey(
  tx: Tx,
  { publicKey, bounds: { maxServices: most } }: Pick<Caller, 'publicKey' | 'bounds'>,
  more = 1,
): Promise<void> {
  if (most === null) return;
  await lockServicesMadeBy(tx, publicKey);
  const used = await countServicesMadeBy(tx, publicKey);
  if (used + more <= most) return;
  throw new ApiError(
    'LIMIT_EXCEEDED',
    `services: this key has made ${used} that are there, and may have ${most}; delete one that ` +
      'is not needed, or use another key',
    { limit: 'max_services', allowed: most, used, wanted: used + more },
  );
}
