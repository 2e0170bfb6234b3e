/** Regions as services and the API see them. */
import { ApiError, SERVICE_SIZES, SERVICE_TYPES } from '@howdah/contract';
import type { TypeCapability } from '../engine/engine.ts';
import type { Region, Regions } from '../engine/regions.ts';

/** The region that a request names; without a name the first. */
export function regionOrRefuse({ all, first }: Regions, code: string | undefined): Region {
  const region = code === undefined ? first : all.find((one) => one.code === code);
  if (region !== undefined) return region;
  const allowed = `${all.map((one) => one.code).join(', ')} (GET /projects/{project_id}/regions)`;
  throw new ApiError(
    'INVALID_REQUEST',
    `region_code: found ${JSON.stringify(code)}; allowed: ${allowed}`,
  );
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
