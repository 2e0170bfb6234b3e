/** Which add-ons a create asks for that names none. */
import { ADDONS_OF_TYPE, type Addon } from '@howdah/contract';
import type { Engine } from '../../engine/engine.ts';

/** The add-ons of the type that Tiger Cloud defaults to, if this engine has it. */
export function defaultAddons(engine: Pick<Engine, 'capabilities'>): readonly Addon[] {
  return 'version' in engine.capabilities.types.TIMESCALEDB
    ? ADDONS_OF_TYPE.TIMESCALEDB
    : ADDONS_OF_TYPE.POSTGRES;
}
