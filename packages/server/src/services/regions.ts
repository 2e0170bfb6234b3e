/** The region of this installation: the engine as services and the API see it. */
import { SERVICE_SIZES, SERVICE_TYPES } from '@howdah/contract';
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
