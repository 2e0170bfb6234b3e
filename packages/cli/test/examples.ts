/** One example of each thing that the API answers with. */

export const AT = '2026-01-31T12:00:00.000Z';

const endpoint = { host: '127.0.0.1', port: 20000 };

const pooler = { endpoint: { host: '127.0.0.1', port: 20002 } };

export const set = {
  id: 'qr5wt9z1ab',
  name: 'readers',
  nodes: 2,
  cpu_millis: 500,
  memory_gbs: 2,
  endpoint: { host: '127.0.0.1', port: 20004 },
  connection_pooler: { endpoint: { host: '127.0.0.1', port: 20006 } },
  metadata: { environment: 'DEV' },
  purpose: 'reports',
  status: 'active',
};

export const SERVICE = {
  service_id: 'linltu4hxx',
  project_id: 'n765kku04j',
  allow_list_id: 'list2allow',
  metric_exporter_id: '6f1c9f0e-4f7d-4a0e-9d0c-2f6f7f1b8a11',
  name: 'orders',
  service_type: 'TIMESCALEDB',
  status: 'READY',
  region_code: 'local',
  created: AT,
  endpoint,
  connection_pooler: pooler,
  ha_replicas: { replica_count: 1, sync_replica_count: 1 },
  metadata: { environment: 'PROD' },
  metrics: { memory_mb: 142, milli_cpu: 1310, storage_mb: 512 },
  waits: { cpu: { millis: 640, neighbours: 1 }, writes: { millis: 410, neighbours: 2 } },
  read_replica_sets: [set],
  resources: [
    {
      id: 'lnk2vx0qpa',
      spec: {
        cpu_millis: 1000,
        memory_gbs: 4,
        storage_gb: 40,
        cpu_bound: true,
        volume_type: 'local',
      },
    },
  ],
  warnings: [{ code: 'DISK', message: 'the disk is 91 % full' }],
};

/** A service with nothing that is optional, and with a name that a shell must not take apart. */
export const PLAIN_SERVICE = {
  service_id: 'mq45ho2ud1',
  project_id: 'n765kku04j',
  name: "it's $HOME",
  service_type: 'POSTGRES',
  status: 'PAUSED',
  region_code: 'local',
  created: AT,
  expires_at: '2099-01-31T12:00:00.000Z',
  purge_on_expiry: false,
  endpoint: { host: '127.0.0.1', port: 20008 },
  forked_from: { project_id: 'n765kku04j', service_id: 'linltu4hxx', is_standby: false },
  ha_replicas: { replica_count: 0, sync_replica_count: 0 },
  metadata: { environment: 'DEV' },
  metrics: { memory_mb: null, milli_cpu: null, storage_mb: null },
  read_replica_sets: [],
  resources: [{ id: 'lnk2vx0qpb', spec: { storage_gb: 20, volume_type: 'local' } }],
};

export const creating = {
  ...SERVICE,
  status: 'QUEUED',
  warnings: undefined,
  initial_password: 'VeSmI78KsGT5AM9sxotaH6Jljes_KRHZ',
};

export const operation = {
  id: '01jd3k7w0c',
  kind: 'resize',
  service_id: 'linltu4hxx',
  status: 'succeeded',
  requested_by: 'HD6dyef7cunqk6c3gr2jqn',
  steps: [
    {
      name: 'stop PostgreSQL',
      started: AT,
      finished: '2026-01-31T12:00:00.048Z',
      outcome: 'ok',
      detail: 'for its new size',
    },
    {
      name: 'write configuration',
      started: '2026-01-31T12:00:00.050Z',
      finished: '2026-01-31T12:00:00.062Z',
      outcome: 'ok',
      detail: null,
    },
    {
      name: 'start PostgreSQL',
      started: '2026-01-31T12:00:00.062Z',
      finished: '2026-01-31T12:00:00.069Z',
      outcome: 'failed',
      detail: 'the port is taken',
    },
    {
      name: 'start PostgreSQL',
      started: '2026-01-31T12:00:00.070Z',
      finished: '2026-01-31T12:00:01.270Z',
      outcome: 'ok',
      detail: 'accepting connections',
    },
  ],
  created: AT,
  finished: '2026-01-31T12:00:01.300Z',
};

export const allowList = {
  allow_list_id: 'list2allow',
  project_id: 'n765kku04j',
  description: 'office',
  cidr_blocks: ['203.0.113.0/24', '2001:db8::/32'],
  created_at: '2026-01-31T12:00:00.000Z',
};

export const exporter = {
  exporter_id: '6f1c9f0e-4f7d-4a0e-9d0c-2f6f7f1b8a11',
  project_id: 'n765kku04j',
  name: 'grafana',
  type: 'PROMETHEUS_REMOTE_WRITE',
  region_code: 'local',
  created: AT,
  config: { url: 'https://example.com/write', username: 'howdah' },
  last_success: AT,
  warning: 'the last samples were not accepted: the receiver answered 500',
};

export const vpc = { id: '1001', name: 'office', cidr: '10.1.0.0/16', region_code: 'local' };

export const peerVpc = { ...vpc, id: '1002', name: 'warehouse', cidr: '10.2.0.0/16' };

export const peering = {
  id: '2001',
  peer_account_id: 'n765kku04j',
  peer_region_code: 'local',
  peer_vpc_id: '1002',
  status: 'active',
  provisioned_id: 'pcx-2001',
};

export const project = { id: 'n765kku04j', name: 'default' };

export const projectDetails = {
  ...project,
  created: AT,
  operator: true,
  limits: {
    services: 10,
    replica_sets: null,
    cpu_millis: 8000,
    memory_gbs: null,
    backup_retention_days: 30,
  },
  used: { services: 2, replica_sets: 1, cpu_millis: 2000, memory_gbs: 8 },
  in_use: { cpu_millis: 1310, cpu_beyond_millis: 310 },
};

export const usage = [
  {
    service_id: 'linltu4hxx',
    name: 'orders',
    status: 'READY',
    environment: 'PROD',
    created: AT,
    created_by: 'HD6dyef7cunqk6c3gr2jqn',
    key_name: 'ci',
    servers: 2,
    milli_cpu: 1310,
    memory_mb: 142,
    own_mb: 724,
    shared_mb: 300,
    backups_mb: 96,
    why: 'it cannot fall asleep: it has, or had, replicas; 1 replica with a copy of its data',
  },
  {
    service_id: 'mq45ho2ud1',
    name: "it's $HOME",
    status: 'PAUSED',
    environment: 'DEV',
    created: AT,
    forked_from: 'linltu4hxx',
    servers: 1,
    milli_cpu: null,
    memory_mb: null,
    own_mb: null,
    shared_mb: null,
    backups_mb: null,
    why: 'it is stopped, and takes disk only',
  },
];

export const key = {
  public_key: 'HD6dyef7cunqk6c3gr2jqn',
  name: 'ci',
  role: 'developer',
  dry_run_only: false,
  fork_only: true,
  created: AT,
  created_by: null,
  expires_at: '2099-01-31T12:00:00.000Z',
  revoked_at: null,
  last_used: null,
};

export const authKey = {
  public_key: key.public_key,
  name: key.name,
  role: 'admin',
  fork_only: false,
  dry_run_only: true,
  created: AT,
  project: { ...project, plan_type: 'self-hosted' },
  issuing_user: { id: 'owner', name: 'Owner of this installation', email: 'owner@howdah.local' },
};

export const kubernetesRegion = {
  code: 'kube',
  server: 'https://192.0.2.1:6443',
  host: '192.0.2.2',
  domain: null,
  first_port: 30_000,
  last_port: 30_999,
  storage_class: null,
  images: { '17': 'ghcr.io/cloudnative-pg/postgresql:17-standard-trixie' },
  extensions: { '17': ['vector' as const] },
  pooler_image: 'ghcr.io/cloudnative-pg/pgbouncer:1.25.1',
  placement: {
    node_selector: { pool: 'db' },
    topology_spread: [{ topology_key: 'topology.kubernetes.io/zone' }],
  },
  service_placements: {},
  wal_storage_class: null,
  image_pull_registries: [],
  object_store: {
    endpoint: 'https://s3.example.com',
    bucket: 'backups',
    region: 'eu-west-1',
    key_id: 'AKIA',
    folder: 'howdah/oooooooooo',
    since: AT,
  },
  created: AT,
};

export const repository = {
  id: 'rrrrrrrrrr',
  name: 'offsite',
  type: 's3' as const,
  location: 's3://backups/howdah at https://s3.example.com',
  retention_days: 14,
  created: AT,
  control_saved: AT,
  services: 2,
  waiting_services: 1,
  last_backup: AT,
  backups_mb: 1234,
  behind_seconds: 7,
  backlog_mb: 3,
  problem: null,
};

export const lease = {
  id: 'k3v9x2m1qa',
  project_id: 'n765kku04j',
  from: 'linltu4hxx',
  reset: 'server',
  service_id: 'k3v9x2m1qa',
  endpoint: { host: '127.0.0.1', port: 5451 },
  database: 'tsdb',
  role: 'tsdbadmin',
  ready: true,
  created: AT,
  created_by: 'HDexample',
  expires_at: AT,
};

export const webhook = {
  id: '7',
  url: 'https://example.com/hook',
  types: ['service.status', 'operation.finished'],
  created: AT,
};

export const destination = {
  id: 'desti4mail',
  name: 'oncall',
  type: 'smtp',
  config: {
    host: 'mail.example.com',
    port: 587,
    encryption: 'starttls',
    username: 'howdah',
    from: 'howdah@example.com',
    to: ['dba@example.com'],
  },
  quiet_hours: { from: '22:00', to: '07:00', time_zone: 'Europe/Berlin', critical_passes: true },
  created: AT,
  last_success: AT,
  warning: 'the last message was not accepted: the mail server refused the login',
};

export const alertRule = {
  rule: 'lag',
  about: 'a replica, or a node of a read replica set, is this far behind',
  severity: 'warning',
  enabled: true,
  threshold: 30,
  unit: 'seconds',
  for_minutes: 5,
  default_threshold: 60,
  default_for_minutes: 5,
};

export const incident = {
  id: '12',
  rule: 'unstable',
  severity: 'critical',
  status: 'open',
  service_id: 'linltu4hxx',
  about: 'orders',
  message: 'the service must accept connections and does not',
  opened: AT,
  resolved: null,
};

export const delivery = {
  id: '17',
  message_id: 'msg_17',
  type: 'service.status',
  status: 'failed',
  attempts: 8,
  next_attempt: null,
  response_status: 500,
  error: null,
  created: AT,
  finished: AT,
};

const verification = {
  at: AT,
  succeeded: true,
  recovery_seconds: 4.21,
  recovery_point: AT,
  checks: [{ name: 'pages', succeeded: true, detail: '4096 pages' }],
};

const extension = {
  kind: 'extension',
  default_version: '1.6',
  versions: ['1.6'],
  comment: 'text similarity measurement and index searching based on trigrams',
  requires: [],
  allowed: true,
  preload: false,
  package: 'postgresql-17',
};

export const extensions = [
  { ...extension, name: 'dblink', allowed: false, reason: 'it connects to other servers' },
  { ...extension, name: 'pg_trgm', reason: 'its authors trust it' },
  { ...extension, name: 'timescaledb', preload: true, reason: 'it reaches no files' },
];

export const backups = {
  window: {
    earliest: '2026-01-28T12:00:00.000Z',
    latest: AT,
    days: 3,
    gaps: [{ after: '2026-01-29T12:00:00.000Z', before: '2026-01-29T12:05:00.000Z' }],
  },
  snapshots: [
    { id: 's2', taken: AT, kind: 'scheduled', storage_mb: 90, verification },
    { id: 's1', taken: '2026-01-28T12:00:00.000Z', kind: 'initial', storage_mb: 41 },
  ],
  archive_mb: 32,
  last_verification: verification,
  storage: { total_mb: 512, owned_mb: 100, shared_mb: 412 },
  own_retention_days: null,
  off_machine: [
    {
      repository: 'offsite',
      retention_days: 14,
      earliest: AT,
      latest: AT,
      backups: [{ label: '20260101-120000F', taken: AT, type: 'full', storage_mb: 12 }],
      gaps: [{ after: AT, before: null }],
      backlog_mb: 16,
      backlog_since: AT,
      problem: null,
    },
  ],
  problem: null,
};

export const certificate = {
  format: 'howdah restore certificate 1',
  certificate_id: 'c5oh4ut1zz',
  key_id: '5e'.repeat(32),
  issued_at: AT,
  howdah_version: '0.1.0',
  project_id: 'n765kku04j',
  region_code: 'local',
  service_id: 'linltu4hxx',
  service_name: 'orders',
  operation_id: '01jd3k7w0c',
  backup: { place: 'repository', repository: 'offsite', label: '20260101-120000F', taken: AT },
  postgresql_version: '17.6',
  began: AT,
  ended: AT,
  recovery_point: AT,
  rpo_seconds: 61,
  rto_seconds: 2.345,
  contents: { databases: 2, tables: 14, rows: 41_000_000, uncounted_tables: 1 },
  pages: { pages: 120_000, files: 900 },
  checks: [{ name: 'replay WAL', detail: 'accepting connections after 2.3 s' }],
};

export const certificateSummary = {
  certificate_id: certificate.certificate_id,
  issued_at: AT,
  operation_id: certificate.operation_id,
  backup: certificate.backup,
};

export const certificateKey = {
  key_id: certificate.key_id,
  public_key: '-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n',
  created: AT,
};

export const retention = {
  type: 'TIME',
  retention_days: 14,
  own_retention_days: null,
  local_days: 3,
  repositories: [{ repository: 'offsite', retention_days: 14 }],
};

export const audit = {
  id: '41',
  at: AT,
  public_key: key.public_key,
  address: '127.0.0.1',
  call: 'deleteService',
  method: 'DELETE',
  path: '/projects/n765kku04j/services/linltu4hxx',
  service_id: 'linltu4hxx',
  outcome: 'refused',
  status: 403,
  code: 'FORBIDDEN',
  request_id: '5c30083c-b4b0-4e39-ac96-4e68c224983a',
};

export const events = [
  {
    id: '5',
    type: 'service.status',
    timestamp: AT,
    data: { service_id: 'linltu4hxx', from: 'READY', to: 'UPGRADING' },
  },
  {
    id: '6',
    type: 'operation.step',
    timestamp: AT,
    data: {
      service_id: 'linltu4hxx',
      operation_id: operation.id,
      kind: 'resize',
      step: operation.steps[0],
    },
  },
];

export const available = { available: true, version: '3.0' };
