/**
 * An answer to each call of the API, as an installation gave or would give it. The server of these
 * tests holds each against the document.
 */
import {
  AT,
  audit,
  authKey,
  available,
  backups,
  certificate,
  certificateKey,
  certificateSummary,
  extensions,
  creating,
  delivery,
  events,
  key,
  operation,
  peering,
  peerVpc,
  PLAIN_SERVICE,
  project,
  projectDetails,
  usage,
  SERVICE,
  set,
  allowList,
  exporter,
  vpc,
  kubernetesRegion,
  repository,
  retention,
  lease,
  webhook,
  destination,
  alertRule,
  incident,
} from './examples.ts';

/** `operation`: the answer names one, which is waited for. */
export type Answer = {
  status: number;
  body?: unknown;
  text?: string;
  operation?: true;
  cookie?: string;
  warning?: string;
};

const accepted = (body?: unknown): Answer => ({
  status: 202,
  operation: true,
  ...(body === undefined ? {} : { body }),
});

const ok = (body: unknown): Answer => ({ status: 200, body });

const made = (body: unknown): Answer => ({ status: 201, body });

const nothing: Answer = { status: 204 };

/** A recovery kit, as `howdah repo kit` prints it. */
export const RECOVERY_KIT = {
  howdah: 'recovery kit',
  installation_id: 'aaaaaaaaaa',
  repository: {
    name: 'offsite',
    type: 's3',
    endpoint: 'https://s3.example.com',
    bucket: 'backups',
    region: 'r1',
    key_id: 'K',
    key: 'the secret key',
  },
  passphrase: 'the passphrase of the encryption',
};

export const ANSWERS: Readonly<Record<string, Answer>> = {
  getAuthInfo: ok({ type: 'apiKey', api_key: authKey, apiKey: authKey }),
  logout: nothing,
  identifyAnalytics: ok({ status: 'success' }),
  trackAnalytics: ok({ status: 'success' }),
  sendFeedback: ok({ status: 'success' }),
  beginSession: { ...nothing, cookie: 'howdah=0123abcd; Path=/; HttpOnly' },
  openLink: { ...nothing, cookie: 'howdah=4567cdef; Path=/; HttpOnly' },
  startDeviceLogin: ok({
    device_code: 'GmRhmhcxhwAzkoEqiMEg_DnyEysNkuNhszIySk9eS0s',
    user_code: 'BCDF-GHJK',
    verification_uri: 'http://127.0.0.1:8080/device',
    verification_uri_complete: 'http://127.0.0.1:8080/device#BCDF-GHJK',
    expires_in: 600,
    interval: 0,
  }),
  collectDeviceLogin: ok({
    access_token: 'HDmade:secret',
    token_type: 'Bearer',
    public_key: 'HDmade',
    project_id: 'n765kku04j',
    role: 'developer',
    expires_at: null,
  }),
  findDeviceLogin: ok({
    user_code: 'BCDF-GHJK',
    client_name: 'howdah on laptop',
    address: '192.0.2.7',
    created: AT,
    expires_at: AT,
  }),
  approveDeviceLogin: ok({ message: 'the login is approved' }),
  denyDeviceLogin: ok({ message: 'the login is denied; its program gets no key' }),
  createLink: made({ path: '/login#0IZJ5ZOSPcPc2mmGPZlj6X6kt4u9-YsMY3UxK9D82GM', expires: AT }),
  listProjects: ok([project, { id: 'a1b2c3d4e5', name: 'team' }]),
  createProject: made(projectDetails),
  getProject: ok(projectDetails),
  listUsage: ok(usage),
  renameProject: ok(projectDetails),
  setProjectLimits: ok(projectDetails),
  listRegions: ok([
    {
      code: 'local',
      aliases: ['us-east-1', 'eu-west-1'],
      engine: 'local',
      limits_enforced: true,
      limits_note: 'by cgroups',
      cpu_bound: false,
      isolation: { isolated: true, note: 'a user for each service' },
      clone_method: 'copy',
      fork_cost: 'a full copy',
      sizes: [{ cpu_millis: 500, memory_gbs: 2, has_room: true }],
      service_types: [
        {
          service_type: 'POSTGRES',
          available: true,
          version: '17.11',
          versions: [
            { pg_version: '18', available: true, version: '18.4' },
            { pg_version: '17', available: true, version: '17.11' },
          ],
        },
        {
          service_type: 'VECTOR',
          available: false,
          reason: 'pgvector is missing: apt-get install postgresql-17-pgvector',
          versions: [],
        },
      ],
      actions: [
        { action: 'setHA', available: true },
        { action: 'query', available: false, reason: 'no PostgreSQL runs here' },
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
  deleteService: accepted({ ...SERVICE, status: 'DELETING' }),
  listDeletedServices: ok([
    {
      service_id: 'linltu4hxx',
      name: 'orders',
      service_type: 'TIMESCALEDB',
      environment: 'PROD',
      created_by: 'HD3ci',
      deleted: AT,
      restorable_until: '2026-02-01T12:00:00.000Z',
      restore_note: 'earlier if the disk fills',
      restore_at_risk: false,
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
  listBackups: ok([
    {
      label: 's2',
      type: 'FULL',
      started_at: AT,
      finished_at: AT,
      duration_seconds: 0,
      size_bytes: 90_000_000,
      regions: [
        { region_code: 'local', status: 'FINISHED' },
        { region_code: 'offsite', status: 'FINISHED' },
      ],
    },
  ]),
  listBackupRegions: ok([{ region_code: 'offsite', created: AT }]),
  addBackupRegion: ok({ region_code: 'offsite', created: AT }),
  removeBackupRegion: nothing,
  getBackupStatus: ok(backups),
  getBackupRetention: ok(retention),
  setBackupRetention: ok({
    ...retention,
    retention_days: 30,
    own_retention_days: 30,
    repositories: [{ repository: 'offsite', retention_days: 30 }],
  }),
  listCertificates: ok([certificateSummary]),
  getCertificate: ok({ certificate, signature: '0a'.repeat(64) }),
  listCertificateKeys: ok([certificateKey]),
  verifyBackup: accepted({ message: 'the backup is being verified' }),
  runBackup: accepted({ message: 'the newest snapshot is being backed up' }),
  listExtensions: ok([
    {
      region_code: 'local',
      postgres_version: '17.6',
      source: 'system',
      timescaledb_edition: 'apache',
      extensions,
    },
  ]),
  listServiceExtensions: ok(
    extensions.map((extension) =>
      extension.name === 'pg_trgm'
        ? { ...extension, state: 'enabled', version: '1.6' }
        : { ...extension, state: 'disabled' },
    ),
  ),
  enableExtension: accepted({ ...SERVICE, status: 'CONFIGURING' }),
  disableExtension: accepted({ ...SERVICE, status: 'CONFIGURING' }),
  restoreService: accepted(SERVICE),
  recoverService: accepted({ ...SERVICE, status: 'RESUMING' }),
  resetService: accepted({ ...SERVICE, status: 'CONFIGURING' }),
  upgradeService: accepted({ ...SERVICE, status: 'UPGRADING' }),
  moveService: accepted(SERVICE),
  startService: accepted({ ...SERVICE, status: 'RESUMING' }),
  stopService: accepted({ ...SERVICE, status: 'PAUSING' }),
  resizeService: accepted({ ...SERVICE, status: 'UPGRADING' }),
  enablePooler: ok({ message: 'the connection pooler is enabled' }),
  disablePooler: ok({ message: 'the connection pooler is disabled' }),
  setHA: accepted({ ...SERVICE, status: 'CONFIGURING' }),
  restartService: accepted({ ...SERVICE, status: 'UPGRADING' }),
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
  setPurposeOfReplicaSet: ok({ message: 'the set is for lookups' }),
  updatePassword: nothing,
  setEnvironment: ok({ message: 'the environment is PROD' }),
  renameService: ok(SERVICE),
  setAutoSuspend: accepted({ ...SERVICE, auto_suspend_seconds: 300 }),
  getAwake: ok({
    auto_suspend_seconds: 300,
    suspended: false,
    held_by: [
      {
        kind: 'session',
        name: 'pool',
        user: 'tsdbadmin',
        database: 'tsdb',
        address: '192.0.2.7',
        since: AT,
        state: 'idle',
        listens: true,
      },
    ],
  }),
  setExpiry: ok({ ...SERVICE, expires_at: '2027-01-31T12:00:00.000Z', purge_on_expiry: false }),
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
  getSimulation: ok({ now: AT, script: {} }),
  setSimulationScript: ok({ now: AT, script: { delays_ms: { create: 60_000 } } }),
  advanceSimulationClock: ok({ now: AT, script: { delays_ms: { create: 60_000 } } }),
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
  describeSeries: ok([
    {
      name: 'connections',
      description: 'connections of clients',
      unit: 'connections',
      labels: ['node', 'role'],
      functions: ['last', 'max', 'p99'],
    },
  ]),
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
  attachToAllowList: accepted({ message: 'the allow list is being attached' }),
  detachFromAllowList: accepted({ message: 'the allow list is being detached' }),
  attachToExporter: ok({ message: 'the exporter gets the samples of the service' }),
  detachFromExporter: ok({ message: 'the exporter gets no more samples of the service' }),
  listExporters: ok([exporter]),
  createExporter: made(exporter),
  getExporter: ok(exporter),
  updateExporter: ok(exporter),
  deleteExporter: nothing,
  listAllowLists: ok([allowList]),
  createAllowList: made(allowList),
  getAllowList: ok(allowList),
  updateAllowList: ok(allowList),
  deleteAllowList: nothing,
  listVpcs: ok([vpc, peerVpc]),
  createVpc: made(vpc),
  getVpc: ok(vpc),
  deleteVpc: nothing,
  renameVpc: ok({ ...vpc, message: 'the VPC is renamed' }),
  listPeerings: ok([peering]),
  createPeering: made({
    ...peering,
    status: 'pending',
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
  listKubernetesRegions: ok([kubernetesRegion]),
  addRegion: made(kubernetesRegion),
  setObjectStore: ok(kubernetesRegion),
  setImages: ok(kubernetesRegion),
  setPlacement: ok(kubernetesRegion),
  examineRegion: ok([
    { what: 'Kubernetes', state: 'ok', found: 'v1.36.3' },
    {
      what: 'storage class',
      state: 'missing',
      found: 'there is no default class',
      remedy: 'add one',
    },
  ]),
  listRepositories: ok([repository]),
  createRepository: made(repository),
  getRepository: ok(repository),
  checkRepository: ok(repository),
  getRecoveryKit: ok(RECOVERY_KIT),
  createServiceFromKit: accepted(creating),
  adoptService: accepted({ ...SERVICE, status: 'QUEUED', assumed: ['environment: DEV'] }),
  deleteRepository: nothing,
  removeRegion: nothing,
  listAlertDestinations: ok([destination]),
  createAlertDestination: made(destination),
  getAlertDestination: ok(destination),
  updateAlertDestination: ok(destination),
  deleteAlertDestination: nothing,
  testAlertDestination: ok({
    delivered: true,
    response_status: null,
    error: null,
    elapsed_ms: 12,
  }),
  listAlertRules: ok([alertRule]),
  setAlertRule: ok(alertRule),
  listIncidents: ok([incident]),
  takeLeases: made({ leases: [{ ...lease, initial_password: 'example' }] }),
  listLeases: ok([lease]),
  getLease: ok(lease),
  extendLeases: ok({ leases: [lease] }),
  returnLeases: { status: 202, body: { leases: [lease] } },
  returnLease: { status: 202, body: { leases: [lease] } },
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

/** The answer to the dry run of each change. */
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
