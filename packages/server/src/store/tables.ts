/** The tables of the metadata database, as Kysely knows them. */
import type {
  AddonExtension,
  AlertRuleName,
  DeliveryStatus,
  DestinationType,
  ErrorCode,
  EventType,
  ExporterType,
  LeaseReset,
  PeeringStatus,
  Placement,
  QuietHours,
  RepositoryType,
  Role,
} from '@howdah/contract';
import { type ColumnType, type Generated, Kysely, type Selectable, type Transaction } from 'kysely';
import type { RuleSettings } from '../domain/alerts/conditions.ts';
import type { ShownConfig } from '../domain/alerts/document.ts';
import type { AlertMessage } from '../domain/alerts/messages.ts';
import type { PublicConfig } from '../domain/exporter/document.ts';
import type { OperationRow } from '../domain/operation.ts';
import type { ServiceRow } from '../domain/service/row.ts';

/** The place of the object store of a region on Kubernetes. */
export type ObjectStorePlace = Readonly<{
  id: string;
  since: string;
  endpoint: string;
  bucket: string;
  region: string;
  key_id: string;
}>;

type Moment = ColumnType<Date, Date | string, Date | string>;

/**
 * The table of a row.
 *
 * @template Defaulted columns that an insert may leave out
 * @template Json columns that are read as values and written as JSON text
 */
type TableOf<Row, Defaulted extends keyof Row, Json extends keyof Row> = {
  [C in Exclude<keyof Row, Defaulted | Json>]: Row[C];
} & { [C in Defaulted]: Generated<Row[C]> } & {
  [C in Json]: ColumnType<Row[C], JsonText<Row[C]> | undefined, JsonText<Row[C]>>;
};
type JsonText<Value> = string | Extract<Value, null>;

export interface Tables {
  projects: {
    id: string;
    name: string;
    created: Generated<Date>;
    operator: Generated<boolean>;
    max_services: Generated<number | null>;
    max_replica_sets: Generated<number | null>;
    max_cpu_millis: Generated<number | null>;
    max_memory_gbs: Generated<number | null>;
    max_backup_retention_days: Generated<number | null>;
  };
  project_usage: {
    project_id: string;
    services: number;
    replica_sets: number;
    cpu_millis: number;
    memory_gbs: number;
  };
  api_keys: {
    public_key: string;
    project_id: string;
    name: string;
    role: Role;
    secret_hash: Buffer;
    dry_run_only: Generated<boolean>;
    fork_only: Generated<boolean>;
    service_ttl_seconds: Generated<number | null>;
    max_service_ttl_seconds: Generated<number | null>;
    service_auto_suspend_seconds: Generated<number | null>;
    max_services: Generated<number | null>;
    created_by: Generated<string | null>;
    created: Generated<Date>;
    expires_at: Moment | null;
    revoked_at: Moment | null;
    last_used: Moment | null;
  };
  kept_answers: {
    public_key: string;
    lookup: Buffer;
    request: Buffer;
    sealed: Buffer;
    created: Generated<Date>;
  };
  console_tokens: {
    token_hash: string;
    kind: 'link' | 'session';
    public_key: string;
    expires_at: Moment;
  };
  login_requests: {
    code_hash: string;
    user_code: string;
    client_name: string;
    address: string;
    code_challenge: string | null;
    redirect_uri: string | null;
    approved: boolean | null;
    answered_by: string | null;
    role: Role | null;
    key_expires_at: Moment | null;
    created: Generated<Date>;
    expires_at: Moment;
  };
  regions: { code: string; last_port: number };
  simulated_documents: {
    region_code: string;
    key: string;
    document: ColumnType<unknown, string, string>;
  };
  recorded_primaries: { service_id: string; server: number };
  server_ports: { service_id: string; server: number; region_code: string; port: number };
  promised_ports: { region_code: string; port: number; holder: string };
  services: TableOf<
    ServiceRow,
    | 'created'
    | 'created_by'
    | 'expires_at'
    | 'purge_on_expiry'
    | 'expiry_warning_at'
    | 'region_alias'
    | 'preload'
    | 'creates_extension'
    | 'drops_extension'
    | 'cpu_bound'
    | 'purge'
    | 'backup_retention_days'
    | 'restarts'
    | 'provisioned'
    | 'deleting'
    | 'pooler'
    | 'pooler_port'
    | 'pooler_host'
    | 'replica_count'
    | 'sync_replica_count'
    | 'has_gateway'
    | 'switchover'
    | 'parent_id'
    | 'nodes'
    | 'purpose'
    | 'reachable'
    | 'due_at'
    | 'attempt',
    | 'origin'
    | 'kept'
    | 'recovery'
    | 'upgrade'
    | 'upgraded'
    | 'move'
    | 'waits'
    | 'read_replica_sets'
    | 'warnings'
  >;
  leased_servers: {
    service_id: string;
    parent_id: string;
    committed: string | null;
    is_shared: Generated<boolean>;
  };
  leased_databases: {
    id: string;
    service_id: string;
    database: string;
    role: string;
    verifier: string;
    state: Generated<'asked' | 'ready' | 'returned'>;
    problem: ColumnType<string | null, undefined, string | null>;
    created: ColumnType<Date, undefined, never>;
    created_by: string;
    expires_at: Date;
  };
  lease_demands: {
    parent_id: string;
    peak: number;
    taken_at: Generated<Date>;
    committed: string | null;
  };
  /** A view. */
  leases: Readonly<{
    id: string;
    project_id: string;
    parent_id: string;
    reset: LeaseReset;
    service_id: string;
    host: string;
    port: number;
    database: string;
    role: string;
    ready: boolean;
    problem: string | null;
    created: Date;
    created_by: string | null;
    expires_at: Date | null;
  }>;
  operations: TableOf<OperationRow, 'created' | 'not_carried', 'steps' | 'request'>;
  vpcs: {
    /** A bigint, which is read as text. */
    id: Generated<string>;
    project_id: string;
    region_code: string;
    /** The alias of the region by which the VPC was asked for. */
    region_alias: string | null;
    name: string;
    cidr: string;
    created: Generated<Date>;
    last_host: Generated<number>;
    deleting: Generated<boolean>;
    wanted: Generated<number>;
    made: Generated<number>;
  };
  peerings: {
    id: Generated<string>;
    vpc_id: string;
    peer_account_id: string;
    peer_region_code: string;
    peer_vpc_id: string;
    asked: boolean;
    status: PeeringStatus;
    error_message: string | null;
    provisioned_id: string | null;
    created: Generated<Date>;
  };
  repositories: {
    id: string;
    name: string;
    type: RepositoryType;
    location: string;
    sealed: Buffer;
    owner: string;
    retention_days: number;
    control_saved: ColumnType<Date | null, never, Date>;
    control_problem: Generated<string | null>;
    is_lost: Generated<boolean>;
    created: Generated<Date>;
  };
  former_repositories: {
    location: string;
    id: string;
    sealed: Buffer;
    owner: string;
    noted: Generated<Date>;
  };
  kubernetes_regions: {
    code: string;
    server: string;
    sealed: Buffer | null;
    host: string;
    /** The domain of its services at its TLS gateway; null: they have ports of its nodes. */
    domain: ColumnType<string | null, string | null | undefined, never>;
    first_port: number;
    last_port: number;
    storage_class: string | null;
    /** By major version of PostgreSQL. */
    images: ColumnType<Readonly<Record<string, string>>, string, string>;
    /** Those of each image beside the contributed modules. */
    extensions: ColumnType<Readonly<Record<string, readonly AddonExtension[]>>, string, string>;
    pooler_image: string;
    /** On which nodes the pods of its services run. */
    placement: ColumnType<Placement, string | undefined, string>;
    /** The fields that services have in place of those, by their ids. */
    service_placements: ColumnType<Readonly<Record<string, Placement>>, string | undefined, string>;
    /** The storage class of a volume for WAL of new services; null: WAL is with the data. */
    wal_storage_class: string | null;
    /** The credentials of registries of images, encrypted; null: none are set. */
    image_pull_sealed: Buffer | null;
    /** The registries of those. */
    image_pull_registries: ColumnType<readonly string[], string | undefined, string>;
    /** Without secrets; null: none is set. */
    object_store: ColumnType<
      ObjectStorePlace | null,
      string | null | undefined,
      string | null | undefined
    >;
    object_store_sealed: ColumnType<Buffer | null, Buffer | null | undefined, Buffer>;
    created: Generated<Date>;
  };
  allow_lists: {
    id: string;
    project_id: string;
    description: string;
    cidr_blocks: string[];
    created: Generated<Date>;
  };
  exporters: {
    id: string;
    former_id: string | null;
    project_id: string;
    region_code: string;
    region_alias: string | null;
    name: string;
    type: ExporterType;
    config: ColumnType<PublicConfig, string, string>;
    secret: Buffer | null;
    created: Generated<Date>;
    next_at: Generated<Date>;
    failures: Generated<number>;
    last_success: Moment | null;
    last_error: string | null;
  };
  certificate_keys: {
    id: string;
    public_key: string;
    sealed: Buffer;
    created: Generated<Date>;
  };
  certificates: { id: string; service_id: string; issued: Moment; document: string };
  vpc_addresses: { vpc_id: string; address: string; service_id: string };
  events: {
    seq: ColumnType<string, never, never>;
    project_id: string;
    at: Date;
    type: EventType;
    doc: string;
  };
  event_horizon: { pruned: ColumnType<string, number, number> };
  webhooks: {
    id: string;
    project_id: string;
    url: string;
    types: EventType[];
    secret: Buffer;
    created: Generated<Date>;
    fanned_out: ColumnType<string, string, string>;
    lease_until: Moment | null;
  };
  deliveries: {
    id: ColumnType<string, never, never>;
    webhook_id: string;
    message_id: string;
    type: EventType;
    body: string;
    status: Generated<DeliveryStatus>;
    attempts: Generated<number>;
    next_at: Generated<Date>;
    response_status: number | null;
    error: string | null;
    created: Generated<Date>;
    finished: Moment | null;
  };
  alert_destinations: {
    id: string;
    project_id: string;
    name: string;
    type: DestinationType;
    config: ColumnType<ShownConfig, string, string>;
    secret: Buffer;
    quiet_hours: ColumnType<QuietHours | null, string | null, string | null>;
    created: Generated<Date>;
    last_success: ColumnType<Date | null, Date | undefined, Date>;
    last_error: ColumnType<string | null, undefined, string | null>;
  };
  alert_rules: { project_id: string; rule: AlertRuleName } & RuleSettings;
  alert_incidents: {
    id: ColumnType<string, never, never>;
    project_id: string;
    rule: AlertRuleName;
    subject: string;
    service_id: string | null;
    about: string;
    message: string;
    since: ColumnType<Date, Date, never>;
    opened: ColumnType<Date | null, Date | null, Date>;
    cleared: ColumnType<Date | null, undefined, Date | null>;
    resolved: ColumnType<Date | null, undefined, Date>;
  };
  alert_messages: {
    id: ColumnType<string, never, never>;
    destination_id: string;
    body: ColumnType<AlertMessage, string, string>;
    held: boolean;
    attempts: Generated<number>;
    next_at: Generated<Date>;
    created: Generated<Date>;
  };
  audit_log: {
    id: ColumnType<string, never, never>;
    at: Generated<Date>;
    project_id: string;
    public_key: string | null;
    address: string;
    call: string;
    method: string;
    path: string;
    service_id: string | null;
    operation_id: string | null;
    status: number;
    code: ErrorCode | null;
    request_id: string;
    count: Generated<number>;
    last_at: Generated<Date | null>;
  };
  kept_logs: {
    id: Generated<string>;
    service_id: string;
    region_code: string;
    server: number;
    pod: string;
    from_ns: string;
    until_ns: string;
    lines: Buffer;
    kept: Generated<Moment>;
  };
  samples: {
    service_id: string;
    node: number;
    at: Moment;
    cpu_millis: number;
    memory_bytes: ColumnType<string, number, number>;
    storage_bytes: ColumnType<string, number, number>;
    connections: number;
    transactions_per_second: number;
    lag_bytes: ColumnType<string | null, number | null, number | null>;
    lag_seconds: number | null;
    cpu_wait_millis: number | null;
    write_wait_millis: number | null;
  };
}

/** A lease, as the view shows it. */
export type LeaseRow = Selectable<Tables['leases']>;

/** Either the database or a transaction in it. */
export type Db = Kysely<Tables>;

export type Tx = Transaction<Tables>;
