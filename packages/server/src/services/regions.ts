/** Regions as services and the API see them. */
import {
  ApiError,
  REGIONAL_ACTIONS,
  SERVICE_SIZES,
  SERVICE_TYPES,
  type Action,
  type RegionalAction,
  type RegionDocument,
} from '@howdah/contract';
import { diskWarning } from '../domain/disk.ts';
import { hasRoom, overcommitment, type Committed } from '../domain/service/capacity.ts';
import type { Capabilities, DiskUsage, TypeCapability } from '../engine/engine.ts';
import type { Region, Regions } from '../engine/regions.ts';
import { readDisk } from './room.ts';

/** A region, and the alias by which a request names it; null: its code, or no name. */
export type NamedRegion = Readonly<{ region: Region; alias: string | null }>;

/** The region that a request names; without a name the first. */
export function regionOrRefuse(regions: Regions, code: string | undefined): NamedRegion {
  if (regions.first === null)
    throw new ApiError(
      'CONFLICT',
      'this installation has no region yet; add a Kubernetes cluster: howdah region add',
    );
  if (code === undefined) return { region: regions.first, alias: null };
  const region = findRegion(regions, code);
  if (region !== undefined) return { region, alias: region.code === code ? null : code };
  const codes = regions.all.map((one) => one.code).join(', ');
  throw new ApiError(
    'INVALID_REQUEST',
    `region_code: found ${JSON.stringify(code)}; ` +
      `allowed: ${codes} and their aliases (GET /projects/{project_id}/regions)`,
  );
}

/** A region by its code, or else by an alias. */
export function findRegion({ all }: Regions, name: string): Region | undefined {
  return all.find(({ code }) => code === name) ?? all.find(({ aliases }) => aliases.includes(name));
}

export const isRegional = (action: Action): action is RegionalAction =>
  REGIONAL_ACTIONS.some((one) => one === action);

/**
 * Refuses an action that is not possible in a region, in the words of its engine.
 *
 * @param subject what was asked for, as the caller named it
 */
export function refuseImpossible(
  { engine }: { engine: { capabilities: Pick<Capabilities, 'actions'> } },
  action: RegionalAction,
  subject: string = action,
): void {
  const possibility = engine.capabilities.actions[action];
  if (!possibility.possible)
    throw new ApiError('UNAVAILABLE_HERE', `${subject}: ${possibility.why}`);
}

/** @param all the sizes of all services together, by region; null: the caller may not know them */
export async function describeRegion(
  { code, aliases, engine }: Region,
  all: ReadonlyMap<string, Committed> | null,
): Promise<RegionDocument> {
  const { capabilities } = engine;
  // Measured again for each answer: the disk of a service is that of its region.
  const usage = await readDisk(engine);
  const disk = usage === null ? null : diskWarning(usage);
  return {
    code,
    aliases: [...aliases],
    engine: capabilities.engine,
    isolation: capabilities.isolation,
    limits_enforced: capabilities.limitsEnforced,
    limits_note: capabilities.limitsNote,
    cpu_bound: capabilities.boundsCpu,
    ...(disk === null ? {} : { warnings: [disk] }),
    clone_method: capabilities.cloneMethod,
    fork_cost: capabilities.forkCost,
    sizes: SERVICE_SIZES.map((size) => ({
      cpu_millis: size.cpuMillis,
      memory_gbs: size.memoryGbs,
      has_room: hasRoom(size, capabilities.room),
    })),
    ...describeRoom(capabilities.room),
    ...(all === null
      ? {}
      : { committed: describeCommitted(all.get(code) ?? NOTHING, capabilities, usage) }),
    service_types: SERVICE_TYPES.map((type) => ({
      service_type: type,
      ...availability(capabilities.types[type]),
      versions: capabilities.versions[type].map((one) => ({
        pg_version: String(one.major),
        ...availability(one),
      })),
    })),
    actions: REGIONAL_ACTIONS.map((action) => {
      const possibility = capabilities.actions[action];
      return possibility.possible
        ? { action, available: true }
        : { action, available: false, reason: possibility.why };
    }),
    high_availability: availability(capabilities.gateway),
    pooler: availability(capabilities.pooler),
    storage: { method: 'measured', note: capabilities.storage.note },
    vpc: {
      method: capabilities.vpc.isNetwork ? 'bridge' : 'address',
      note: capabilities.vpc.note,
    },
  };
}

function availability(capability: TypeCapability) {
  return 'version' in capability
    ? {
        available: true,
        version: capability.version,
        ...(capability.note === undefined ? {} : { note: capability.note }),
      }
    : { available: false, reason: capability.missing };
}

const NOTHING: Committed = { servers: 0, cpu_millis: 0, memory_gbs: 0, storage_gb: 0 };

const describeRoom = (room: Capabilities['room']): Pick<RegionDocument, 'capacity'> =>
  room === null ? {} : { capacity: { cpu_millis: room.cpuMillis, memory_bytes: room.memoryBytes } };

/** A cluster has more nodes than its largest one: what it has less of is not known. */
function describeCommitted(
  committed: Committed,
  { room }: Capabilities,
  usage: DiskUsage | null,
): NonNullable<RegionDocument['committed']> {
  const over =
    room === null || room.isNode || usage === null
      ? null
      : overcommitment(committed, room, usage.totalBytes);
  return { ...committed, ...(over === null ? {} : { over }) };
}
