/** Which add-ons and which version a create asks for that names none. */
import { ADDONS_OF_TYPE, type Addon } from '@howdah/contract';
import type { Engine } from '../../engine/engine.ts';

/** The add-ons of the type that Tiger Cloud defaults to, if this engine has it. */
export function defaultAddons(engine: Pick<Engine, 'capabilities'>): readonly Addon[] {
  return 'version' in engine.capabilities.types.TIMESCALEDB
    ? ADDONS_OF_TYPE.TIMESCALEDB
    : ADDONS_OF_TYPE.POSTGRES;
}

/** The major version of PostgreSQL of a service with these add-ons; null: none can be had. */
export function defaultMajor(
  { lifecycle }: Pick<Engine, 'lifecycle'>,
  addons: readonly Addon[],
): number | null {
  const capability = lifecycle.supports(addons, null);
  return 'missing' in capability ? null : capability.major;
}
