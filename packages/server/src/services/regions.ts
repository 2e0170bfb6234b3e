/** The region of this installation: what services and the API know of the engine behind it. */
import { ADDONS_OF_TYPE, SERVICE_SIZES, SERVICE_TYPES, type Addon } from '@howdah/contract';
import type { Config } from '../config.ts';
import type { Engine, TypeCapability } from '../engine/engine.ts';

/** The code of the local engine's region. */
export const LOCAL_REGION = 'local';

export type Region = {
  code: string;
  engine: Engine;
  portRange: Config['portRange'];
  host: string;
  singleProject: Config['singleProject'];
};

/** The add-ons that a create without any asks for: the type that Tiger Cloud defaults to, where this region has it. */
export function defaultAddons(engine: Engine): readonly Addon[] {
  return 'version' in engine.capabilities.types.TIMESCALEDB
    ? ADDONS_OF_TYPE.TIMESCALEDB
    : ADDONS_OF_TYPE.POSTGRES;
}

export function describeRegion({ code, engine }: Region) {
  const { capabilities } = engine;
  return {
    code,
    engine: capabilities.engine,
    isolation: capabilities.isolation,
    limits_enforced: capabilities.limitsEnforced,
    limits_note: capabilities.limitsNote,
    clone_method: capabilities.cloneMethod,
    fork_cost: capabilities.forkCost,
    sizes: SERVICE_SIZES.map(({ cpuMillis, memoryGbs }) => ({
      cpu_millis: cpuMillis,
      memory_gbs: memoryGbs,
    })),
    service_types: SERVICE_TYPES.map((type) => ({
      service_type: type,
      ...availability(capabilities.types[type]),
    })),
    high_availability: availability(capabilities.gateway),
    pooler: availability(capabilities.pooler),
    storage: capabilities.storage,
    vpc: capabilities.vpc,
  };
}

function availability(capability: TypeCapability) {
  return 'version' in capability
    ? { available: true, version: capability.version }
    : { available: false, reason: capability.missing };
}
