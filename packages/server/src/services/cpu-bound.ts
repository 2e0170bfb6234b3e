/** Whether the size of a service is a bound of its CPU too. */
import { ApiError } from '@howdah/contract';
import type { Region } from '../engine/regions.ts';
import type { Caller } from './change.ts';

/**
 * The bound that a request asks for; null: as the region has it. Only the operator exempts a
 * service from the bound of its region. Where that has none, an exemption is not kept: a bound of
 * the region that begins later must not find any.
 *
 * @param asked undefined: nothing
 * @param before what holds without it
 * @throws ApiError FORBIDDEN
 */
export function cpuBoundOrRefuse(
  { code, engine: { capabilities } }: Pick<Region, 'code'> & Bounding,
  { operates }: Pick<Caller, 'operates'>,
  asked: boolean | null | undefined,
  before: boolean | null,
): boolean | null {
  if (asked === undefined || asked === before) return before;
  if (asked !== false) return asked;
  if (!capabilities.boundsCpu) return null;
  if (operates) return false;
  throw new ApiError(
    'FORBIDDEN',
    `cpu_bound: found false; in the region ${code} a size is a bound of the CPU too, and only ` +
      'an admin key of the operator project exempts a service from it: ask the operator, or ' +
      'resize it to more cpu_millis',
  );
}

type Bounding = {
  readonly engine: { readonly capabilities: Pick<Region['engine']['capabilities'], 'boundsCpu'> };
};
