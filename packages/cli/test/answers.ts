/** An answer to each call of the API, as an installation gave or would give it. The server of these tests holds each against the document. */

const AT = '2026-01-31T12:00:00.000Z';
const endpoint = { host: '127.0.0.1', port: 20000 };
const pooler = { endpoint: { host: '127.0.0.1', port: 20002 } };

const set = {
  id: 'qr5wt9z1ab',
  name: 'readers',
  nodes: 2,
  cpu_millis: 500,
  memory_gbs: 2,
  endpoint: { host: '127.0.0.1', port: 20004 },
  connection_pooler: { endpoint: { host: '127.0.0.1', port: 20006 } },
  metadata: { environment: 'DEV' },
  status: 'active',
};

export const SERVICE = {
  service_id: 'linltu4hxx',
  project_id: 'n765kku04j',
  name: 'orders',
  service_type: 'TIMESCALEDB',
  status: 'READY',
  region_code: 'local',
  created: AT,
  endpoint,
  connection_pooler: pooler,
  ha_replicas: { replica_count: 1, sync_replica_count: 1 },
  metadata: { environment: 'PROD' },
  metrics: { memory_mb: 142, milli_cpu: 31, storage_mb: 512 },
  read_replica_sets: [set],
  resources: [
    {
      id: 'lnk2vx0qpa',
      spec: { cpu_millis: 1000, memory_gbs: 4, storage_gb: 40, volume_type: 'local' },
    },
  ],
  warnings: [{ code: 'DISK', message: 'the disk is 91 % full' }],
};

/** It has nothing that is optional, and a name that a shell must not take apart. */
export const PLAIN_SERVICE = {
  service_id: 'mq45ho2ud1',
  project_id: 'n765kku04j',
  name: "it's $HOME",
  service_type: 'POSTGRES',
  status: 'PAUSED',
  region_code: 'local',
  created: AT,
  endpoint: { host: '127.0.0.1', port: 20008 },
  forked_from: { project_id: 'n765kku04j', service_id: 'linltu4hxx', is_standby: false },
  ha_replicas: { replica_count: 0, sync_replica_count: 0 },
  metadata: { environment: 'DEV' },
  metrics: { memory_mb: null, milli_cpu: null, storage_mb: null },
  read_replica_sets: [],
  resources: [{ id: 'lnk2vx0qpb', spec: { storage_gb: 20, volume_type: 'local' } }],
};

const creating = {
  ...SERVICE,
  status: 'QUEUED',
  warnings: undefined,
  initial_password: 'VeSmI78KsGT5AM9sxotaH6Jljes_KRHZ',
};

const operation = {
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
      detail: 'for its new size',
    },
    {
      name: 'write configuration',
      started: '2026-01-31T12:00:00.050Z',
      finished: '2026-01-31T12:00:00.062Z',
      detail: null,
    },
    {
      name: 'start PostgreSQL',
      started: '2026-01-31T12:00:00.070Z',
      finished: '2026-01-31T12:00:01.270Z',
      detail: 'accepting connections',
    },
  ],
  created: AT,
  finished: '2026-01-31T12:00:01.300Z',
};

const vpc = { id: '1001', name: 'office', cidr: '10.1.0.0/16', region_code: 'local' };
const peering = {
  id: '2001',
  peer_account_id: 'n765kku04j',
  peer_region_code: 'local',
  peer_vpc_id: '1002',
  status: 'active',
  provisioned_id: 'pcx-2001',
};
const project = { id: 'n765kku04j', name: 'default' };
const projectDetails = {
  ...project,
  created: AT,
  operator: true,
  limits: { services: 10, replica_sets: null, cpu_millis: 8000, memory_gbs: null },
  used: { services: 2, replica_sets: 1, cpu_millis: 2000, memory_gbs: 8 },
};
const key = {
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
const authKey = {
  public_key: key.public_key,
  name: key.name,
  role: key.role,
  fork_only: true,
  dry_run_only: false,
  created: AT,
  project: { ...project, plan_type: 'self-hosted' },
  issuing_user: { id: 'owner', name: 'Owner of this installation', email: 'owner@howdah.local' },
};
const webhook = {
  id: '7',
  url: 'https://example.com/hook',
  types: ['service.status', 'operation.finished'],
  created: AT,
};
const delivery = {
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
const backups = {
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
  problem: null,
};
const audit = {
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
const events = [
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
const available = { available: true, version: '3.0' };

/** `operation`: the answer names one, which is waited for. */
export type Answer = {
  status: number;
  body?: unknown;
  text?: string;
  operation?: true;
  cookie?: string;
};

const accepted = (body?: unknown): Answer => ({
  status: 202,
  operation: true,
  ...(body === undefined ? {} : { body }),
});
const ok = (body: unknown): Answer => ({ status: 200, body });
const made = (body: unknown): Answer => ({ status: 201, body });
const nothing: Answer = { status: 204 };

export const ANSWERS: Readonly<Record<string, Answer>> = {
  getAuthInfo: ok({ type: 'apiKey', api_key: authKey, apiKey: authKey }),
  logout: nothing,
  identifyAnalytics: ok({ status: 'success' }),
  trackAnalytics: ok({ status: 'success' }),
  beginSession: { ...nothing, cookie: 'howdah=0123abcd; Path=/; HttpOnly' },
  openLink: { ...nothing, cookie: 'howdah=4567cdef; Path=/; HttpOnly' },
  createLink: made({ path: '/login#0IZJ5ZOSPcPc2mmGPZlj6X6kt4u9-YsMY3UxK9D82GM', expires: AT }),
  listProjects: ok([project, { id: 'a1b2c3d4e5', name: 'team' }]),
  createProject: made(projectDetails),
  getProject: ok(projectDetails),
  renameProject: ok(projectDetails),
  setProjectLimits: ok(projectDetails),
  listRegions: ok([
    {
      code: 'local',
      engine: 'local',
      limits_enforced: true,
      limits_note: 'by cgroups',
      isolation: { isolated: true, note: 'a user for each service' },
      clone_method: 'copy',
      fork_cost: 'a full copy',
      sizes: [{ cpu_millis: 500, memory_gbs: 2 }],
      service_types: [
        { service_type: 'POSTGRES', available: true, version: '17.11' },
        {
          service_type: 'VECTOR',
          available: false,
          reason: 'pgvector is missing: apt-get install postgresql-17-pgvector',
        },
      ],
      high_availability: available,
      pooler: available,
      storage: { method: 'measured', note: 'measured every ten seconds' },
      vpc: { method: 'bridge', note: 'networks of their own' },
    },
  ]),
  listKeys: ok([
    key,
    { ...key, public_key: 'HD7old', name: 'old', fork_only: false, revoked_at: AT, last_used: AT },
  ]),
  createKey: made({ ...key, secret_key: 'c2VjcmV0LXNlY3JldC1zZWNyZXQ' }),
  getKey: ok(key),
  revokeKey: nothing,
  listServices: ok([SERVICE, PLAIN_SERVICE]),
  createService: accepted(creating),
  getService: ok(SERVICE),
  deleteService: accepted(),
  listDeletedServices: ok([
    {
      service_id: 'linltu4hxx',
      name: 'orders',
      service_type: 'TIMESCALEDB',
      environment: 'PROD',
      created_by: 'HD3ci',
      deleted: AT,
      restorable_until: '2026-02-01T12:00:00.000Z',
    },
  ]),
  listMembers: ok([
    {
      node: 1,
      role: 'primary',
      state: 'running',
      synchronous: false,
      lag_bytes: null,
      lag_seconds: null,
    },
    {
      node: 2,
      role: 'standby',
      state: 'streaming',
      synchronous: true,
      lag_bytes: 0,
      lag_seconds: 0.003,
    },
  ]),
  forkService: accepted({
    ...creating,
    ...PLAIN_SERVICE,
    status: 'QUEUED',
    connection_pooler: undefined,
  }),
  getBackups: ok(backups),
  verifyBackup: accepted({ message: 'the backup is being verified' }),
  restoreService: accepted(SERVICE),
  startService: accepted({ ...SERVICE, status: 'RESUMING' }),
  stopService: accepted({ ...SERVICE, status: 'PAUSING' }),
  resizeService: accepted({ ...SERVICE, status: 'UPGRADING' }),
  enablePooler: ok({ message: 'the connection pooler is enabled' }),
  disablePooler: ok({ message: 'the connection pooler is disabled' }),
  setHA: accepted({ ...SERVICE, status: 'CONFIGURING' }),
  switchover: accepted({ ...SERVICE, status: 'CONFIGURING' }),
  drill: accepted({ ...SERVICE, status: 'CONFIGURING' }),
  listReplicaSets: ok([set]),
  createReplicaSet: accepted({ ...set, status: 'creating', connection_pooler: undefined }),
  getReplicaSet: ok({
    ...set,
    lag_limit: { bytes: 16_777_216, seconds: 10 },
    node_states: [
      { node: 1, serving: true, lag_bytes: 0, lag_seconds: 0.1, detail: '0 bytes behind' },
      { node: 2, serving: false, lag_bytes: null, lag_seconds: null, detail: 'it is starting' },
    ],
  }),
  deleteReplicaSet: accepted(),
  resizeReplicaSet: accepted({ message: 'the read replica set is being resized' }),
  enablePoolerOfReplicaSet: ok({ message: 'the connection pooler is enabled' }),
  disablePoolerOfReplicaSet: ok({ message: 'the connection pooler is disabled' }),
  setEnvironmentOfReplicaSet: ok({ message: 'the environment is PROD' }),
  updatePassword: nothing,
  setEnvironment: ok({ message: 'the environment is PROD' }),
  renameService: ok(SERVICE),
  getServiceLogs: ok({
    logs: [
      `${AT} LOG: checkpoint complete`,
      `${AT} LOG: database system is ready to accept connections`,
    ],
    entries: [
      { timestamp: AT, message: 'checkpoint complete', severity: 'LOG' },
      { timestamp: AT, message: 'database system is ready to accept connections', severity: 'LOG' },
    ],
  }),
  getDoctor: ok([
    { what: 'Node.js', state: 'ok', found: '20.19.4' },
    {
      what: 'PgBouncer',
      state: 'missing',
      found: 'not installed',
      remedy: 'apt-get install pgbouncer',
    },
  ]),
  queryService: ok({
    columns: [
      { name: 'id', type: 'integer' },
      { name: 'note', type: 'text' },
    ],
    rows: [
      ['42', null],
      ['43', 'two\nlines'],
    ],
    row_count: 2,
    truncated: true,
    elapsed_ms: 3,
  }),
  listSeries: ok(['connections', 'cpu_millis']),
  querySeries: ok([
    {
      labels: { state: 'active' },
      data: [
        { time: AT, value: 3 },
        { time: '2026-01-31T12:01:00.000Z', value: null },
      ],
    },
    {
      labels: { state: 'idle' },
      data: [
        { time: AT, value: 1.5 },
        { time: '2026-01-31T12:01:00.000Z', value: 2 },
      ],
    },
  ]),
  attachToVPC: accepted({ message: 'the service is being put into the VPC' }),
  detachFromVPC: accepted({ message: 'the service is being taken out of its VPC' }),
  listVpcs: ok([vpc]),
  createVpc: made(vpc),
  getVpc: ok(vpc),
  deleteVpc: nothing,
  renameVpc: ok({ ...vpc, message: 'the VPC is renamed' }),
  listPeerings: ok([peering]),
  createPeering: made({
    ...peering,
    status: 'invalid',
    error_message: 'no such VPC',
    provisioned_id: undefined,
  }),
  getPeering: ok(peering),
  deletePeering: nothing,
  listOperations: ok([operation]),
  getOperation: ok(operation),
  cancelOperation: ok({
    ...operation,
    kind: 'drill',
    status: 'failed',
    error: 'cancelled',
    steps: [],
  }),
  streamEvents: {
    status: 200,
    text: events
      .map((event) => `id: ${event.id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
      .join(''),
  },
  listWebhooks: ok([webhook]),
  createWebhook: made({ ...webhook, secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' }),
  deleteWebhook: nothing,
  testWebhook: ok({ delivered: true, response_status: 200, error: null, elapsed_ms: 12 }),
  listDeliveries: ok([delivery]),
  redeliver: accepted({
    ...delivery,
    status: 'pending',
    attempts: 0,
    next_attempt: AT,
    response_status: null,
    finished: null,
  }),
  listAudit: ok([audit]),
  exportAudit: { status: 200, text: `${JSON.stringify(audit)}\n` },
};

/** What each change answers that is only asked about. */
export const PLAN = {
  dry_run: true,
  response_status: 202,
  operation: {
    kind: 'resize',
    service_id: 'linltu4hxx',
    steps: ['stop PostgreSQL', 'write configuration', 'start PostgreSQL'],
  },
};
export const OPERATION = operation;
