/**
 * A service as it is in the metadata database. A read replica set and a spare are such rows too.
 */
import type {
  Addon,
  DrillKind,
  Environment,
  LiveStatus,
  ReadReplicaSet,
  ServiceType,
  ServiceWaits,
  SetPurpose,
  Warning,
} from '@howdah/contract';
import type { Endpoint, Origin, Recovery, Upgrade } from '../../engine/spec.ts';

/** The backups of a deleted service in a repository. Times are ISO 8601. */
export type Kept = {
  /** The id of the repository that has them longest. */
  repository: string;
  /** When the removal of its data from this machine began. */
  since: string;
  until: string;
  /** Whether nothing of it is left on this machine. */
  isRemoved: boolean;
};

/**
 * An upgrade or reset that is done: the version before it, when it was done, and what had made the
 * data before, which older releases did not record. Without a version, nothing of the former data
 * is left, so that it cannot be undone: after a reset, or where only the data of it was found.
 */
export type Upgraded = {
  id: string;
  from: number | null;
  at: string | null;
  before?: Upgraded | null;
};

/**
 * A move to another region (docs/decisions/0070-moves-between-regions.md). Times are ISO 8601.
 */
export type Move = {
  id: string;
  /**
   * copy: a copy follows the service. switch: the service is stopped, so that the copy has all of
   * it. abort: the service goes on, and the copy is removed. moved: the copy is the service. kept:
   * its former server, which is stopped, waits for its removal.
   */
  state: 'copy' | 'switch' | 'abort' | 'moved' | 'kept';
  from: string;
  source: Endpoint;
  to: string;
  /** The alias of the other region by which the move was asked for; null: none. */
  toAlias: string | null;
  endpoint: Endpoint;
  /** Whether the source has the roles of this move, which an abort drops. */
  prepared: boolean;
  /** Since when a copy that runs does not stream; null: it streams, or does not run yet. */
  silent: string | null;
  /** When the switch began; null: it has not. */
  switched: string | null;
  /** Whether the copy has the last password of the admin role, which cannot change any more. */
  kept: boolean;
  /** Until when the former server is kept; null: it is not known yet. */
  until: string | null;
  /** Why it is aborted; null: it is not. */
  problem: string | null;
  /** Whether its owner may lack the functions that no other region can enforce. */
  withheld?: boolean;
  /** Whether an abort has closed the roles of the copy: nobody can log in as one of them. */
  closed?: boolean;
  /** Whether a removed service has no data in its region: only the copy of an abort is left. */
  removed?: boolean;
};

export type ServiceRow = {
  id: string;
  /** null: a spare, or a service whose data is being removed for good. */
  project_id: string | null;
  region_code: string;
  /** The alias of the region by which the service was asked for; null: none. */
  region_alias: string | null;
  name: string;
  service_type: ServiceType;
  addons: Addon[];
  /** The major version of PostgreSQL; null: not known yet, of a service of an older release. */
  pg_version: number | null;
  /** Extensions beside those of the add-ons whose libraries are loaded. */
  preload: string[];
  /** The extension that was asked to be created, or to be dropped. */
  creates_extension: string | null;
  drops_extension: string | null;
  environment: Environment;
  created: Date;
  created_by: string | null;
  /** When it is deleted; null: it does not expire. */
  expires_at: Date | null;
  /** Whether it cannot be restored after it has expired. */
  purge_on_expiry: boolean;
  /** When the event service.expiring is due; null: it is not. */
  expiry_warning_at: Date | null;
  /** The time without use after which it falls asleep; null: never. */
  auto_suspend_seconds: number | null;
  /** Since when it sleeps; null: it is awake. */
  suspended_at: Date | null;
  /** When it was last used before it fell asleep; null: it never has. */
  last_active_at: Date | null;
  host: string;
  port: number;
  resource_id: string;
  /** null: the shared size. */
  cpu_millis: number | null;
  memory_gbs: number | null;
  storage_gb: number;
  /** Whether its size is a bound of its CPU too; null: as its region has it. */
  cpu_bound: boolean | null;
  /** Whether the data is removed without the time for a restore. */
  purge: boolean;
  /** How many restarts were requested. */
  restarts: number;
  /** Whether it has been provisioned: users may have written to it. */
  provisioned: boolean;
  power: 'running' | 'paused';
  deleting: boolean;
  first_verifier: string | null;
  origin: Origin | null;
  /** The restore of the data from its backups; null: none is under way. */
  recovery: Recovery | null;
  /** The upgrade that is under way, its undo, or a reset; problem: why it was given up. */
  upgrade: (Omit<Upgrade, 'before'> & { problem: string | null }) | null;
  /** The last upgrade that was not undone, or reset; null: there is none. */
  upgraded: Upgraded | null;
  /** The move to another region; null: there is none. */
  move: Move | null;
  deleted_at: Date | null;
  /** The service's backups, when its data was removed from this machine; null: it was not. */
  kept: Kept | null;
  /** For how many days repositories keep its backups; null: as they say themselves. */
  backup_retention_days: number | null;
  pooler: boolean;
  pooler_port: number | null;
  /** Where its pooler is; null: at the host of the service. */
  pooler_host: string | null;
  replica_count: number;
  sync_replica_count: number;
  /** Whether a gateway is before its servers: it has replicas, or had some. */
  has_gateway: boolean;
  /** Whether another primary was asked for. */
  switchover: boolean;
  drill: DrillKind | null;
  vpc_id: string | null;
  vpc_address: string | null;
  allow_list_id: string | null;
  metric_exporter_id: string | null;
  /** Samples up to this time are pushed; null: none was. */
  exported_until: Date | null;
  /** The networks of its VPC, or without one of its allow list; null: it has neither. */
  allowed_networks: string[] | null;
  /** The service that a read replica set follows; null: not a set. */
  parent_id: string | null;
  /** The number of its nodes, if it is a read replica set. */
  nodes: number;
  /** For which reads a read replica set is. */
  purpose: SetPurpose;
  read_replica_sets: ReadReplicaSet[];
  reachable: boolean;
  memory_mb: number | null;
  milli_cpu: number | null;
  storage_mb: number | null;
  /** The notable waits of the last sample; null: there were none. */
  waits: ServiceWaits | null;
  warnings: Warning[];
  operation_id: string | null;
  status: LiveStatus;
  /** The document that the API returns, as JSON text. */
  doc: string;
  due_at: Date | null;
  attempt: number;
  lease_token: string | null;
  lease_until: Date | null;
};

/** The facts of a service that callers may change. Status and document follow from them. */
export type ServiceChange = Partial<
  Pick<
    ServiceRow,
    | 'project_id'
    | 'region_code'
    | 'region_alias'
    | 'pg_version'
    | 'name'
    | 'environment'
    | 'purpose'
    | 'created'
    | 'created_by'
    | 'expires_at'
    | 'purge_on_expiry'
    | 'expiry_warning_at'
    | 'auto_suspend_seconds'
    | 'suspended_at'
    | 'last_active_at'
    | 'preload'
    | 'creates_extension'
    | 'drops_extension'
    | 'cpu_millis'
    | 'memory_gbs'
    | 'host'
    | 'port'
    | 'storage_gb'
    | 'cpu_bound'
    | 'purge'
    | 'backup_retention_days'
    | 'restarts'
    | 'provisioned'
    | 'power'
    | 'deleting'
    | 'deleted_at'
    | 'first_verifier'
    | 'replica_count'
    | 'sync_replica_count'
    | 'has_gateway'
    | 'switchover'
    | 'drill'
    | 'nodes'
    | 'read_replica_sets'
    | 'reachable'
    | 'memory_mb'
    | 'milli_cpu'
    | 'storage_mb'
    | 'warnings'
    | 'pooler'
    | 'pooler_port'
    | 'pooler_host'
    | 'vpc_id'
    | 'vpc_address'
    | 'allow_list_id'
    | 'metric_exporter_id'
    | 'allowed_networks'
    | 'due_at'
    | 'attempt'
    | 'lease_token'
    | 'lease_until'
  >
> &
  Partial<Pick<ServiceRow, 'kept' | 'recovery' | 'upgrade' | 'upgraded' | 'move' | 'waits'>>;
