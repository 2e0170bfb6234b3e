/** The spec of a service for the engine, from its row. */
import {
  type Size,
  ADDONS_OF_TYPE,
  protectionOf,
  type Addon,
  type Environment,
} from '@howdah/contract';
import type { Move, ServiceChange, ServiceRow } from './row.ts';
import { upgradedWithout } from './upgrades.ts';
import type {
  Endpoint,
  ExtensionChange,
  HighAvailability,
  ServiceSpec,
  Upgrade,
} from '../../engine/spec.ts';
import type { Engine } from '../../engine/engine.ts';

export function serviceSpec(row: ServiceRow): ServiceSpec {
  return {
    id: row.id,
    projectId: row.project_id,
    addons: row.addons,
    major: row.pg_version,
    preload: row.preload,
    extension: extensionChange(row),
    size: sizeOf(row),
    storageGb: row.storage_gb,
    ...(row.cpu_bound === null ? {} : { cpuBound: row.cpu_bound }),
    restarts: row.restarts,
    provisioned: row.provisioned,
    // A deleted service stops. Its row keeps the desired state for a restore.
    power: row.deleting ? 'paused' : row.power,
    endpoint: { host: row.host, port: row.port },
    firstVerifier: row.first_verifier,
    origin: row.origin,
    recovery: row.recovery,
    upgrade: upgradeOf(row),
    pooler: poolerSpec(row),
    ha: highAvailabilitySpec(row),
    vpc: row.vpc_id === null ? null : { id: row.vpc_id, address: row.vpc_address },
    allowedNetworks: row.allowed_networks,
    set:
      row.parent_id === null
        ? null
        : { parent: row.parent_id, nodes: row.nodes, purpose: row.purpose },
    ...sourceOf(row.move),
    ...sleepOf(row),
  };
}

function sleepOf({
  auto_suspend_seconds: afterSeconds,
  suspended_at,
  operation_id,
}: ServiceRow): Pick<ServiceSpec, 'sleep'> {
  if (afterSeconds === null) return {};
  const isAsleep = suspended_at !== null;
  return { sleep: { afterSeconds, isAsleep, mayStay: operation_id === null } };
}

/** Until an abort has ended too: its roles may still be able to log in. */
function sourceOf(move: Move | null): Pick<ServiceSpec, 'move'> {
  const isSource = move?.state === 'copy' || move?.state === 'switch' || move?.state === 'abort';
  return isSource ? { move: { as: 'source', isAborted: move.state === 'abort' } } : {};
}

/** The spec of the copy of a service in the other region, until that is the service. */
export function copySpec(row: ServiceRow, { endpoint, source }: Move): ServiceSpec {
  return {
    ...serviceSpec(row),
    power: 'running',
    endpoint,
    provisioned: false,
    extension: null,
    // The data of a copy has no other origin than the service.
    origin: null,
    recovery: null,
    upgrade: null,
    move: { as: 'copy', source },
  };
}

/** An upgrade that was given up leaves the service as it was. */
function upgradeOf({ upgrade, upgraded }: ServiceRow): Upgrade | null {
  if (upgrade === null || upgrade.problem !== null) return null;
  const { problem: _, ...asked } = upgrade;
  return { ...asked, before: upgradedWithout(upgraded, upgrade.id)?.id ?? null };
}

function extensionChange(row: ServiceRow): ExtensionChange | null {
  if (row.creates_extension !== null) return { name: row.creates_extension, wanted: 'created' };
  return row.drops_extension === null ? null : { name: row.drops_extension, wanted: 'dropped' };
}

/** The listener of the pooler; null: there is none. */
export function poolerSpec(row: ServiceRow): Endpoint | null {
  if (!row.pooler || row.pooler_port === null) return null;
  return { host: row.pooler_host ?? row.host, port: row.pooler_port };
}

function highAvailabilitySpec(row: ServiceRow): HighAvailability | null {
  if (!row.has_gateway) return null;
  return {
    replicas: row.replica_count,
    sync: row.sync_replica_count,
    switchover: row.switchover,
    drill: row.drill,
  };
}

export function sizeOf(row: Pick<ServiceRow, 'cpu_millis' | 'memory_gbs'>): Size {
  return row.cpu_millis === null || row.memory_gbs === null
    ? 'shared'
    : { cpuMillis: row.cpu_millis, memoryGbs: row.memory_gbs };
}

export function sizeColumns(size: Size): { cpu_millis: number | null; memory_gbs: number | null } {
  return size === 'shared'
    ? { cpu_millis: null, memory_gbs: null }
    : { cpu_millis: size.cpuMillis, memory_gbs: size.memoryGbs };
}

/**
 * The columns that say where a service is and who may connect. Its sets have the same, each with
 * its own port.
 */
export function networkColumnsOf(row: ServiceRow): ServiceChange {
  const { vpc_id, vpc_address, allow_list_id, allowed_networks } = row;
  return { vpc_id, vpc_address, allow_list_id, allowed_networks };
}

// Which add-ons and which version a create asks for that names none.

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

/** The environment that protects a service, or a read replica set. */
export const protectionOfRow = ({
  environment,
  read_replica_sets: sets,
}: Pick<ServiceRow, 'environment' | 'read_replica_sets'>): Environment =>
  protectionOf(environment, sets);
