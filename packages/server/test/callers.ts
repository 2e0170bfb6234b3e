/**
 * Who may call what: one row for each operation of the OpenAPI document, and one function that says
 * what is answered to whom. The tests of `callers.test.ts` are made from it, and a unit test fails
 * when an operation has no row.
 *
 * Written by hand from the contract and docs/security.md. It must not read
 * packages/contract/src/permissions.ts: a table that is wrong would be expected to be wrong.
 */
import { bucket, kit, series, service, set } from './callers-bodies.ts';
import type { Route } from './document.ts';

export type Row = {
  /**
   * read: every key. session: every key but dry_run_only. change: those that may change things.
   * admin, operator: those keys only. fork: also keys for forks only. data: those that may change
   * things, in earnest.
   */
  needs: 'read' | 'session' | 'change' | 'admin' | 'operator' | 'fork' | 'data';
  /** Changes nothing, whatever key it takes. */
  reads?: true;
  /** Whether the operator's admin keys reach it in every project. */
  everywhere?: true;
  /** Answered without a key. */
  open?: true;
  /** A good body. */
  body?: object;
  /** The answer to a dry run on a running service of one's own, where that is not 200. */
  own?: number;
};

export const CALLERS: Record<string, Row> = {
  getAuthInfo: { needs: 'read' },
  logout: { needs: 'read', own: 204 },
  identifyAnalytics: { needs: 'read' },
  trackAnalytics: { needs: 'read' },
  sendFeedback: { needs: 'read', body: { message: 'made' } },
  beginSession: { needs: 'session', own: 204 },
  createLink: { needs: 'session', own: 201 },
  // The link is not valid, for any caller.
  openLink: { needs: 'read', own: 401, body: { token: 'x'.repeat(43) } },
  startDeviceLogin: { needs: 'read', open: true, body: { client_name: 'made' } },
  // Nobody began a login with that code, and none waits with the other.
  collectDeviceLogin: { needs: 'read', own: 401, body: { device_code: 'x'.repeat(43) } },
  findDeviceLogin: { needs: 'read', own: 404, body: { user_code: 'BCDF-GHJK' } },
  approveDeviceLogin: {
    needs: 'admin',
    own: 404,
    body: { user_code: 'BCDF-GHJK', role: 'viewer' },
  },
  denyDeviceLogin: { needs: 'admin', own: 404, body: { user_code: 'BCDF-GHJK' } },
  listProjects: { needs: 'read' },
  createProject: { needs: 'operator', body: { name: 'made' } },
  getProject: { needs: 'read', everywhere: true },
  listUsage: { needs: 'read', everywhere: true },
  renameProject: { needs: 'admin', everywhere: true, body: { name: 'renamed' } },
  setProjectLimits: { needs: 'operator', everywhere: true, body: { services: 3 } },
  listRegions: { needs: 'read' },
  getDoctor: { needs: 'operator', reads: true },
  // The script names services of all projects.
  getSimulation: { needs: 'operator', reads: true },
  setSimulationScript: { needs: 'operator', body: {} },
  advanceSimulationClock: { needs: 'operator', body: { seconds: 1 } },
  listRepositories: { needs: 'operator', reads: true },
  // The body does not say which bucket.
  createRepository: { needs: 'operator', own: 400, body: { name: 'made', type: 's3' } },
  getRepository: { needs: 'operator', reads: true, own: 404 },
  deleteRepository: { needs: 'operator', own: 404 },
  checkRepository: { needs: 'operator', own: 404 },
  getRecoveryKit: { needs: 'operator', own: 404 },
  // The kit does not say which bucket.
  createServiceFromKit: { needs: 'operator', own: 400, body: { kit } },
  // The root is no directory of a service.
  adoptService: { needs: 'operator', own: 400, body: { directory: '/' } },
  listKubernetesRegions: { needs: 'operator', reads: true },
  // An empty object is no kubeconfig.
  addRegion: { needs: 'operator', own: 400, body: { code: 'made', kubeconfig: '{}' } },
  setObjectStore: { needs: 'operator', own: 404, body: bucket },
  setImages: { needs: 'operator', own: 404, body: { images: { 17: 'made:17' } } },
  setPlacement: { needs: 'operator', own: 404, body: { placement: {} } },
  removeRegion: { needs: 'operator', own: 404 },
  examineRegion: { needs: 'operator', reads: true, own: 404 },
  listKeys: { needs: 'read', everywhere: true },
  createKey: { needs: 'admin', everywhere: true, body: { name: 'made', role: 'viewer' } },
  getKey: { needs: 'read', everywhere: true },
  revokeKey: { needs: 'admin', everywhere: true },
  listServices: { needs: 'read' },
  createService: { needs: 'change', body: service },
  getService: { needs: 'read' },
  deleteService: { needs: 'change' },
  listDeletedServices: { needs: 'read' },
  listMembers: { needs: 'read' },
  forkService: { needs: 'fork', body: { fork_strategy: 'NOW' } },
  // There is no such service, and no lease; leases.test.ts has some.
  takeLeases: { needs: 'fork', own: 404, body: { from: 'nothing' } },
  listLeases: { needs: 'read' },
  getLease: { needs: 'read', own: 404 },
  extendLeases: { needs: 'fork', body: { lease_ids: ['nothing'], ttl_seconds: 60 } },
  returnLeases: { needs: 'fork', body: { lease_ids: ['nothing'] } },
  returnLease: { needs: 'fork', own: 404 },
  listBackups: { needs: 'read' },
  listBackupRegions: { needs: 'read' },
  // There is no repository.
  addBackupRegion: { needs: 'read', own: 404, body: { region_code: 'nowhere' } },
  removeBackupRegion: { needs: 'read', own: 404 },
  getBackupStatus: { needs: 'read' },
  getBackupRetention: { needs: 'read' },
  setBackupRetention: { needs: 'admin', body: { retention_days: null } },
  listCertificates: { needs: 'read' },
  getCertificate: { needs: 'read' },
  listCertificateKeys: { needs: 'read' },
  verifyBackup: { needs: 'change', own: 200 },
  // There is no repository.
  runBackup: { needs: 'change', own: 422, body: {} },
  restoreService: { needs: 'change', own: 400 },
  recoverService: { needs: 'admin', own: 400, body: {} },
  // The service is no fork, and no parent has this moment.
  resetService: {
    needs: 'change',
    own: 400,
    body: { target: 'PITR', target_time: '2020-01-01T00:00:00Z' },
  },
  upgradeService: { needs: 'change', own: 400, body: { undo: true } },
  // The service is in that region.
  moveService: { needs: 'change', own: 400, body: { region_code: 'local' } },
  startService: { needs: 'change', own: 400 },
  stopService: { needs: 'change' },
  restartService: { needs: 'change' },
  resizeService: { needs: 'change', body: { cpu_millis: '1000' } },
  enablePooler: { needs: 'change' },
  disablePooler: { needs: 'change' },
  setHA: { needs: 'change', body: { replica_count: 0 } },
  switchover: { needs: 'change', own: 400 },
  drill: { needs: 'change', own: 400, body: { kind: 'switchover' } },
  listReplicaSets: { needs: 'read' },
  createReplicaSet: { needs: 'change', body: set },
  getReplicaSet: { needs: 'read' },
  deleteReplicaSet: { needs: 'change' },
  resizeReplicaSet: { needs: 'change', body: { cpu_millis: '500' } },
  enablePoolerOfReplicaSet: { needs: 'change' },
  disablePoolerOfReplicaSet: { needs: 'change' },
  setEnvironmentOfReplicaSet: { needs: 'change', body: { environment: 'PROD' } },
  setPurposeOfReplicaSet: { needs: 'change', body: { purpose: 'lookups' } },
  updatePassword: { needs: 'change', body: { password: 'long-enough' } },
  setEnvironment: { needs: 'change', body: { environment: 'PROD' } },
  renameService: { needs: 'change', body: { name: 'renamed' } },
  setExpiry: { needs: 'change', body: { expires_at: null } },
  setAutoSuspend: { needs: 'change', body: { auto_suspend_seconds: null } },
  getAwake: { needs: 'read' },
  getServiceLogs: { needs: 'read' },
  listSeries: { needs: 'read' },
  describeSeries: { needs: 'read' },
  querySeries: { needs: 'read', body: series },
  queryService: { needs: 'data', body: { sql: 'select 1' } },
  listExtensions: { needs: 'read' },
  listServiceExtensions: { needs: 'read' },
  enableExtension: { needs: 'change', body: { name: 'pg_trgm' } },
  disableExtension: { needs: 'change' },
  attachToVPC: { needs: 'change', own: 404, body: { vpc_id: '1' } },
  detachFromVPC: { needs: 'change' },
  attachToAllowList: { needs: 'change', own: 404, body: { allow_list_id: 'nothing' } },
  detachFromAllowList: { needs: 'change', own: 404, body: { allow_list_id: 'nothing' } },
  attachToExporter: { needs: 'change', own: 404, body: { exporter_id: 'nothing' } },
  detachFromExporter: { needs: 'change', own: 404, body: { exporter_id: 'nothing' } },
  listExporters: { needs: 'read' },
  createExporter: {
    needs: 'change',
    body: {
      name: 'made',
      type: 'OTLP_METRICS',
      region_code: 'local',
      config: { url: 'https://receiver.invalid/' },
    },
  },
  getExporter: { needs: 'read' },
  updateExporter: { needs: 'change', body: { name: 'changed' } },
  deleteExporter: { needs: 'change' },
  listAllowLists: { needs: 'read' },
  createAllowList: { needs: 'change', body: { description: 'made', cidr_blocks: ['::/0'] } },
  getAllowList: { needs: 'read' },
  updateAllowList: { needs: 'change', body: { description: 'changed' } },
  deleteAllowList: { needs: 'change' },
  listVpcs: { needs: 'read' },
  createVpc: { needs: 'change', body: { name: 'made', cidr: '10.9.0.0/16', region_code: 'local' } },
  getVpc: { needs: 'read' },
  // The VPC has a peering.
  deleteVpc: { needs: 'change', own: 409 },
  renameVpc: { needs: 'change', body: { name: 'renamed' } },
  listPeerings: { needs: 'read' },
  createPeering: {
    needs: 'change',
    body: { peer_account_id: 'x', peer_region_code: 'local', peer_vpc_id: '1' },
  },
  getPeering: { needs: 'read' },
  deletePeering: { needs: 'change' },
  listOperations: { needs: 'read' },
  getOperation: { needs: 'read' },
  cancelOperation: { needs: 'change', own: 400 },
  streamEvents: { needs: 'read' },
  listWebhooks: { needs: 'read' },
  createWebhook: { needs: 'change', body: { url: 'https://receiver.invalid/' } },
  deleteWebhook: { needs: 'change' },
  testWebhook: { needs: 'change' },
  listDeliveries: { needs: 'read' },
  redeliver: { needs: 'change' },
  listAlertDestinations: { needs: 'read' },
  createAlertDestination: {
    needs: 'change',
    body: { name: 'made', type: 'slack', config: { url: 'https://receiver.invalid/' } },
  },
  getAlertDestination: { needs: 'read' },
  updateAlertDestination: { needs: 'change', body: { name: 'changed' } },
  deleteAlertDestination: { needs: 'change' },
  testAlertDestination: { needs: 'change' },
  listAlertRules: { needs: 'read' },
  setAlertRule: { needs: 'change', body: { rule: 'lag', threshold: 30 } },
  listIncidents: { needs: 'read' },
  listAudit: { needs: 'read' },
  exportAudit: { needs: 'read' },
};

/** Keys that are none: each is 401. */
export const UNAUTHENTICATED = ['none', 'malformed', 'wrong', 'revoked', 'expired'] as const;
/** Keys of the project whose services are called, then of others. */
export const KEYS = [
  'admin',
  'developer',
  'viewer',
  'forkOnly',
  'dryRunOnly',
  'otherAdmin',
  'operator',
] as const;
export type CallerKind = (typeof UNAUTHENTICATED)[number] | (typeof KEYS)[number];

/**
 * Ids in the path: of the project that is called, of another, of nothing, of no shape, and of
 * another kind of thing.
 */
export const ID_KINDS = ['own', 'others', 'random', 'misshapen', 'ofAnotherKind'] as const;
export type IdKind = (typeof ID_KINDS)[number];

/**
 * What is answered.
 *
 * @param project whose project the path names: the caller's, another's that exists, or one that is
 *   not there
 * @param ids which kind of ids stand in the path besides the project
 */
export function expectedStatus(
  route: Route,
  row: Row,
  caller: CallerKind,
  project: 'own' | 'others' | 'random',
  ids: IdKind,
): number {
  if (row.open === true) return row.own ?? 200;
  if (UNAUTHENTICATED.some((kind) => kind === caller)) return 401;
  const operator = caller === 'operator';
  if (row.needs === 'operator' && !operator) return 403;
  if (
    route.names.includes('project_id') &&
    project !== 'own' &&
    !(operator && row.everywhere === true)
  )
    return 403;
  if (row.needs !== 'read' && row.needs !== 'session' && caller === 'viewer') return 403;
  if ((row.needs === 'data' || row.needs === 'session') && caller === 'dryRunOnly') return 403;
  if (row.needs === 'admin' && (caller === 'developer' || caller === 'forkOnly')) return 403;
  const found = ids === 'own' && project !== 'random';
  if (route.names.includes('service_id') && !found) return 404;
  if (caller === 'forkOnly' && (route.changes || row.needs === 'data') && row.needs !== 'fork')
    return 403;
  if (route.names.includes('project_id') && project === 'random') return 404;
  if (route.names.some((name) => name !== 'project_id') && !found) return 404;
  return row.own ?? 200;
}

/** The tags of our service and set that a path names. */
export type Tags = { service: 'DEV' | 'PROD'; set: 'DEV' | 'PROD' };
export const TAGS: readonly Tags[] = [
  { service: 'PROD', set: 'PROD' },
  { service: 'PROD', set: 'DEV' },
  { service: 'DEV', set: 'PROD' },
];

/**
 * "developer may do everything but … stop, restart, reset, upgrade, move, delete or retag PROD
 * services": the calls that do, and the tags for which. A service takes its sets along when it
 * stops, restarts or is deleted.
 */
const NOT_FOR_DEVELOPERS: Record<string, (tags: Tags) => boolean> = {
  stopService: ({ service: of, set: its }) => of === 'PROD' || its === 'PROD',
  restartService: ({ service: of, set: its }) => of === 'PROD' || its === 'PROD',
  resetService: ({ service: of, set: its }) => of === 'PROD' || its === 'PROD',
  upgradeService: ({ service: of, set: its }) => of === 'PROD' || its === 'PROD',
  moveService: ({ service: of, set: its }) => of === 'PROD' || its === 'PROD',
  deleteService: ({ service: of, set: its }) => of === 'PROD' || its === 'PROD',
  deleteReplicaSet: ({ set: of }) => of === 'PROD',
  // Without the tag it could be deleted.
  setEnvironment: ({ service: of }) => of === 'PROD',
  setEnvironmentOfReplicaSet: ({ set: of }) => of === 'PROD',
};

/** The answer for the service and the set of the caller's own project when they have these tags. */
export function expectedWithTags(route: Route, row: Row, caller: CallerKind, tags: Tags): number {
  const otherwise = expectedStatus(route, row, caller, 'own', 'own');
  return caller === 'developer' && NOT_FOR_DEVELOPERS[route.operationId]?.(tags) === true
    ? 403
    : otherwise;
}

/**
 * What a fork_only key with the role developer is answered for a DEV service, by whether it is a
 * fork that the key made; and a dry_run_only key with the role admin. yes: as its role allows. dry
 * run: as its role allows, and nothing is done. no: 403.
 */
type Restricted = { fork: 'yes' | 'no'; other: 'yes' | 'no'; dryRunOnly: 'yes' | 'dry run' | 'no' };
const READ: Restricted = { fork: 'yes', other: 'yes', dryRunOnly: 'yes' };
const OWN_FORK: Restricted = { fork: 'yes', other: 'no', dryRunOnly: 'dry run' };
const NO_FORK: Restricted = { fork: 'no', other: 'no', dryRunOnly: 'dry run' };

/**
 * The calls below a service, and those that have none in their path (the same in both columns). A
 * unit test fails when one is missing.
 */
export const RESTRICTED: Record<string, Restricted> = {
  getAuthInfo: READ,
  logout: READ,
  identifyAnalytics: READ,
  trackAnalytics: READ,
  sendFeedback: READ,
  beginSession: { fork: 'yes', other: 'yes', dryRunOnly: 'no' },
  createLink: { fork: 'yes', other: 'yes', dryRunOnly: 'no' },
  openLink: READ,
  startDeviceLogin: READ,
  collectDeviceLogin: READ,
  findDeviceLogin: READ,
  approveDeviceLogin: NO_FORK,
  denyDeviceLogin: NO_FORK,
  listProjects: READ,
  createProject: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  getProject: READ,
  listUsage: READ,
  renameProject: NO_FORK,
  setProjectLimits: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  listRegions: READ,
  getDoctor: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  getSimulation: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  setSimulationScript: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  advanceSimulationClock: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  listRepositories: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  createRepository: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  getRepository: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  deleteRepository: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  checkRepository: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  getRecoveryKit: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  createServiceFromKit: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  adoptService: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  listKubernetesRegions: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  addRegion: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  setObjectStore: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  setImages: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  setPlacement: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  removeRegion: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  examineRegion: { fork: 'no', other: 'no', dryRunOnly: 'no' },
  listKeys: READ,
  createKey: NO_FORK,
  getKey: READ,
  revokeKey: NO_FORK,
  listServices: READ,
  createService: NO_FORK,
  getService: READ,
  deleteService: OWN_FORK,
  listDeletedServices: READ,
  listMembers: READ,
  forkService: { fork: 'yes', other: 'yes', dryRunOnly: 'dry run' },
  takeLeases: { fork: 'yes', other: 'yes', dryRunOnly: 'dry run' },
  listLeases: READ,
  getLease: READ,
  extendLeases: { fork: 'yes', other: 'yes', dryRunOnly: 'dry run' },
  returnLeases: { fork: 'yes', other: 'yes', dryRunOnly: 'dry run' },
  returnLease: { fork: 'yes', other: 'yes', dryRunOnly: 'dry run' },
  listBackups: READ,
  listBackupRegions: READ,
  addBackupRegion: READ,
  removeBackupRegion: READ,
  getBackupStatus: READ,
  getBackupRetention: READ,
  setBackupRetention: NO_FORK,
  listCertificates: READ,
  getCertificate: READ,
  listCertificateKeys: READ,
  verifyBackup: OWN_FORK,
  runBackup: OWN_FORK,
  restoreService: OWN_FORK,
  recoverService: NO_FORK,
  resetService: OWN_FORK,
  upgradeService: OWN_FORK,
  moveService: OWN_FORK,
  startService: OWN_FORK,
  stopService: OWN_FORK,
  restartService: OWN_FORK,
  resizeService: OWN_FORK,
  enablePooler: OWN_FORK,
  listExtensions: READ,
  listServiceExtensions: READ,
  enableExtension: OWN_FORK,
  disableExtension: OWN_FORK,
  disablePooler: OWN_FORK,
  setHA: OWN_FORK,
  switchover: OWN_FORK,
  drill: OWN_FORK,
  listReplicaSets: READ,
  createReplicaSet: OWN_FORK,
  getReplicaSet: READ,
  deleteReplicaSet: OWN_FORK,
  resizeReplicaSet: OWN_FORK,
  enablePoolerOfReplicaSet: OWN_FORK,
  disablePoolerOfReplicaSet: OWN_FORK,
  setEnvironmentOfReplicaSet: OWN_FORK,
  setPurposeOfReplicaSet: OWN_FORK,
  updatePassword: OWN_FORK,
  setEnvironment: OWN_FORK,
  renameService: OWN_FORK,
  setExpiry: OWN_FORK,
  setAutoSuspend: OWN_FORK,
  getAwake: READ,
  getServiceLogs: READ,
  listSeries: READ,
  describeSeries: READ,
  querySeries: READ,
  queryService: { fork: 'yes', other: 'no', dryRunOnly: 'no' },
  attachToVPC: OWN_FORK,
  detachFromVPC: OWN_FORK,
  attachToAllowList: OWN_FORK,
  detachFromAllowList: OWN_FORK,
  attachToExporter: OWN_FORK,
  detachFromExporter: OWN_FORK,
  listExporters: READ,
  createExporter: NO_FORK,
  getExporter: READ,
  updateExporter: NO_FORK,
  deleteExporter: NO_FORK,
  listAllowLists: READ,
  createAllowList: NO_FORK,
  getAllowList: READ,
  updateAllowList: NO_FORK,
  deleteAllowList: NO_FORK,
  listVpcs: READ,
  createVpc: NO_FORK,
  getVpc: READ,
  deleteVpc: NO_FORK,
  renameVpc: NO_FORK,
  listPeerings: READ,
  createPeering: NO_FORK,
  getPeering: READ,
  deletePeering: NO_FORK,
  listOperations: READ,
  getOperation: READ,
  cancelOperation: NO_FORK,
  streamEvents: READ,
  listWebhooks: READ,
  createWebhook: NO_FORK,
  deleteWebhook: NO_FORK,
  testWebhook: NO_FORK,
  listDeliveries: READ,
  redeliver: NO_FORK,
  listAlertDestinations: READ,
  createAlertDestination: NO_FORK,
  getAlertDestination: READ,
  updateAlertDestination: NO_FORK,
  deleteAlertDestination: NO_FORK,
  testAlertDestination: NO_FORK,
  listAlertRules: READ,
  setAlertRule: NO_FORK,
  listIncidents: READ,
  listAudit: READ,
  exportAudit: READ,
};

/**
 * The answer to a restricted key in its own project.
 *
 * @param made whether the fork_only key made the service
 */
export function expectedOfRestricted(
  route: Route,
  row: Row,
  caller: 'forkOnly' | 'dryRunOnly',
  made: boolean,
): number {
  const rule = RESTRICTED[route.operationId];
  if (rule === undefined)
    throw new Error(`${route.operationId} is not in the table of restricted keys`);
  const allowed = caller === 'dryRunOnly' ? rule.dryRunOnly : made ? rule.fork : rule.other;
  return allowed === 'no' ? 403 : (row.own ?? 200);
}
