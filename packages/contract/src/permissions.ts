/**
 * Who may make which call. The only source of these rules: the API enforces them, the console shows
 * them, the CLI and `howdah mcp` describe them. `packages/server/test/callers.ts` holds the
 * expected answers, written from the contract and not from this table.
 */
import type { Action } from './actions.ts';
import { ROLES, type Environment, type Role } from './types.ts';

/** The permission that a kind of call needs. */
export type Permission = {
  /**
   * Whether it changes something: it can be asked as a dry run, is audited, and is
   * never allowed to viewers.
   */
  changes: boolean;
  /**
   * Roles that may make the call, by the environment of what it ends, or DEV where it ends nothing.
   */
  DEV: readonly Role[];
  PROD: readonly Role[];
  /** Whether the key must belong to the operator project. */
  operator?: true;
  /** Whether it reads the contents of a database, which is audited. */
  readsData?: true;
  /** Keys that are fork_only: as their role allows, or only for forks that the key made. */
  forkOnly: 'asRole' | 'ownForks';
  /** Keys that are dry_run_only: as their role allows, as a dry run, or not at all. */
  dryRunOnly: 'asRole' | 'dryRun' | 'never';
};

const WRITERS = ['admin', 'developer'] as const;
const ADMINS = ['admin'] as const;

export const PERMISSIONS = {
  read: { changes: false, DEV: ROLES, PROD: ROLES, forkOnly: 'asRole', dryRunOnly: 'asRole' },
  /** Makes a link or a session of the console, which is a row in the metadata database. */
  session: { changes: false, DEV: ROLES, PROD: ROLES, forkOnly: 'asRole', dryRunOnly: 'never' },
  data: {
    changes: false,
    readsData: true,
    DEV: WRITERS,
    PROD: WRITERS,
    forkOnly: 'ownForks',
    dryRunOnly: 'never',
  },
  change: {
    changes: true,
    DEV: WRITERS,
    PROD: WRITERS,
    forkOnly: 'ownForks',
    dryRunOnly: 'dryRun',
  },
  /** Takes something away from its clients, for a while or for good, or its protecting tag. */
  end: { changes: true, DEV: WRITERS, PROD: ADMINS, forkOnly: 'ownForks', dryRunOnly: 'dryRun' },
  fork: { changes: true, DEV: WRITERS, PROD: WRITERS, forkOnly: 'asRole', dryRunOnly: 'dryRun' },
  admin: { changes: true, DEV: ADMINS, PROD: ADMINS, forkOnly: 'ownForks', dryRunOnly: 'dryRun' },
  operator: {
    changes: true,
    DEV: ADMINS,
    PROD: ADMINS,
    operator: true,
    forkOnly: 'ownForks',
    dryRunOnly: 'dryRun',
  },
  operatorRead: {
    changes: false,
    DEV: ADMINS,
    PROD: ADMINS,
    operator: true,
    forkOnly: 'asRole',
    dryRunOnly: 'asRole',
  },
} as const satisfies Record<string, Permission>;
export type Access = keyof typeof PERMISSIONS;

/** Every operation of the OpenAPI document that takes a key. */
export const ACCESS = {
  getAuthInfo: 'read',
  logout: 'read',
  identifyAnalytics: 'read',
  trackAnalytics: 'read',
  sendFeedback: 'read',
  beginSession: 'session',
  createLink: 'session',
  findDeviceLogin: 'read',
  approveDeviceLogin: 'admin',
  denyDeviceLogin: 'admin',
  listProjects: 'read',
  createProject: 'operator',
  getProject: 'read',
  listUsage: 'read',
  renameProject: 'admin',
  setProjectLimits: 'operator',
  listRegions: 'read',
  getDoctor: 'operatorRead',
  getSimulation: 'operatorRead',
  setSimulationScript: 'operator',
  advanceSimulationClock: 'operator',
  listRepositories: 'operatorRead',
  createRepository: 'operator',
  getRepository: 'operatorRead',
  deleteRepository: 'operator',
  checkRepository: 'operator',
  getRecoveryKit: 'operator',
  createServiceFromKit: 'operator',
  adoptService: 'operator',
  listKubernetesRegions: 'operatorRead',
  addRegion: 'operator',
  setImages: 'operator',
  setPlacement: 'operator',
  removeRegion: 'operator',
  setObjectStore: 'operator',
  examineRegion: 'operatorRead',
  listKeys: 'read',
  createKey: 'admin',
  getKey: 'read',
  revokeKey: 'admin',
  listServices: 'read',
  createService: 'change',
  getService: 'read',
  deleteService: 'end',
  listDeletedServices: 'read',
  listMembers: 'read',
  forkService: 'fork',
  takeLeases: 'fork',
  listLeases: 'read',
  getLease: 'read',
  // A fork_only key extends and returns leases that it took (services/leases.ts).
  extendLeases: 'fork',
  returnLeases: 'fork',
  returnLease: 'fork',
  listBackups: 'read',
  listBackupRegions: 'read',
  // The next two change nothing: each repository has the backups of all services.
  addBackupRegion: 'read',
  removeBackupRegion: 'read',
  getBackupStatus: 'read',
  getBackupRetention: 'read',
  setBackupRetention: 'admin',
  listCertificates: 'read',
  getCertificate: 'read',
  listCertificateKeys: 'read',
  verifyBackup: 'change',
  runBackup: 'change',
  restoreService: 'change',
  recoverService: 'admin',
  resetService: 'end',
  upgradeService: 'end',
  moveService: 'end',
  startService: 'change',
  stopService: 'end',
  restartService: 'end',
  resizeService: 'change',
  enablePooler: 'change',
  disablePooler: 'change',
  setHA: 'change',
  switchover: 'change',
  drill: 'change',
  listReplicaSets: 'read',
  createReplicaSet: 'change',
  getReplicaSet: 'read',
  deleteReplicaSet: 'end',
  resizeReplicaSet: 'change',
  enablePoolerOfReplicaSet: 'change',
  disablePoolerOfReplicaSet: 'change',
  setEnvironmentOfReplicaSet: 'end',
  setPurposeOfReplicaSet: 'change',
  updatePassword: 'change',
  setEnvironment: 'end',
  renameService: 'change',
  setExpiry: 'change',
  setAutoSuspend: 'change',
  getAwake: 'read',
  getServiceLogs: 'read',
  listSeries: 'read',
  describeSeries: 'read',
  querySeries: 'read',
  queryService: 'data',
  listExtensions: 'read',
  listServiceExtensions: 'read',
  enableExtension: 'change',
  disableExtension: 'change',
  attachToVPC: 'change',
  detachFromVPC: 'change',
  attachToExporter: 'change',
  detachFromExporter: 'change',
  listExporters: 'read',
  createExporter: 'change',
  getExporter: 'read',
  updateExporter: 'change',
  deleteExporter: 'change',
  attachToAllowList: 'change',
  detachFromAllowList: 'change',
  listAllowLists: 'read',
  createAllowList: 'change',
  getAllowList: 'read',
  updateAllowList: 'change',
  deleteAllowList: 'change',
  listVpcs: 'read',
  createVpc: 'change',
  getVpc: 'read',
  deleteVpc: 'change',
  renameVpc: 'change',
  listPeerings: 'read',
  createPeering: 'change',
  getPeering: 'read',
  deletePeering: 'change',
  listOperations: 'read',
  getOperation: 'read',
  cancelOperation: 'change',
  streamEvents: 'read',
  listWebhooks: 'read',
  createWebhook: 'change',
  deleteWebhook: 'change',
  testWebhook: 'change',
  listDeliveries: 'read',
  redeliver: 'change',
  listAlertDestinations: 'read',
  createAlertDestination: 'change',
  getAlertDestination: 'read',
  updateAlertDestination: 'change',
  deleteAlertDestination: 'change',
  testAlertDestination: 'change',
  listAlertRules: 'read',
  setAlertRule: 'change',
  listIncidents: 'read',
  listAudit: 'read',
  exportAudit: 'read',
} as const satisfies Record<string, Access>;
export type CallName = keyof typeof ACCESS;

type EndingCall = {
  [call in CallName]: (typeof ACCESS)[call] extends 'end' ? call : never;
}[CallName];

/** The verbs of the calls that PROD protects a service from. */
const ENDING = {
  stopService: 'stop',
  restartService: 'restart',
  resetService: 'reset',
  upgradeService: 'upgrade',
  moveService: 'move',
  deleteService: 'delete',
  deleteReplicaSet: 'delete',
  setEnvironment: 'retag',
  setEnvironmentOfReplicaSet: 'retag',
} as const satisfies Record<EndingCall, string>;

const VERBS = [...new Set(Object.values(ENDING))];

/** The same in words: "stop, restart, reset, upgrade, move, delete or retag". */
export const ENDS = `${VERBS.slice(0, -1).join(', ')} or ${VERBS.at(-1) ?? ''}`;

/**
 * What it takes to remove a service, or a deleted one, for good: DELETE
 * of a service with ?purge=true.
 */
export const PURGE: Permission = PERMISSIONS.admin;

/**
 * Why a key may not extend or return a lease that a key has taken; null: it may. A lease that is
 * returned is gone for good with its data.
 */
export function denialOfLease(
  key: Readonly<{ publicKey: string; role: Role; forkOnly: boolean }>,
  takenBy: string | null,
  change: 'extend' | 'return',
): string | null {
  if (takenBy === key.publicKey) return null;
  if (key.forkOnly)
    return (
      'it was taken by another key, and this key is fork_only: it extends and returns leases ' +
      'that it took'
    );
  if (change === 'return' && key.role !== 'admin')
    return (
      'it was taken by another key, and its data would be gone for good: return it with that key ' +
      'or an admin key, or wait for its end'
    );
  return null;
}

/** The call that performs an action on a service. */
const CALL_OF_ACTION: Record<Action, CallName> = {
  delete: 'deleteService',
  start: 'startService',
  stop: 'stopService',
  restart: 'restartService',
  recover: 'recoverService',
  reset: 'resetService',
  upgrade: 'upgradeService',
  undoUpgrade: 'upgradeService',
  move: 'moveService',
  resize: 'resizeService',
  forkNow: 'forkService',
  forkPast: 'forkService',
  enablePooler: 'enablePooler',
  disablePooler: 'disablePooler',
  setHA: 'setHA',
  switchover: 'switchover',
  drill: 'drill',
  attachToVPC: 'attachToVPC',
  detachFromVPC: 'detachFromVPC',
  attachToAllowList: 'attachToAllowList',
  detachFromAllowList: 'detachFromAllowList',
  updatePassword: 'updatePassword',
  setEnvironment: 'setEnvironment',
  rename: 'renameService',
  setExpiry: 'setExpiry',
  setAutoSuspend: 'setAutoSuspend',
  setBackupRetention: 'setBackupRetention',
  verifyBackup: 'verifyBackup',
  runBackup: 'runBackup',
  createReplicaSet: 'createReplicaSet',
  changeReplicaSet: 'resizeReplicaSet',
  deleteReplicaSet: 'deleteReplicaSet',
  query: 'queryService',
  enableExtension: 'enableExtension',
  disableExtension: 'disableExtension',
};

const BY_CALL: ReadonlyMap<string, Permission> = new Map(
  Object.entries(ACCESS).map(([call, access]) => [call, PERMISSIONS[access]]),
);

/** The permission that a call needs; null: it takes no key. */
export const permissionOf = (call: string | undefined): Permission | null =>
  BY_CALL.get(call ?? '') ?? null;

/** Why a role may not make a call; null: it may. @param environment of what the call would end */
export function denial(
  role: Role,
  { DEV, PROD }: Permission,
  environment: Environment = 'DEV',
): string | null {
  const allowed = environment === 'PROD' ? PROD : DEV;
  if (allowed.includes(role)) return null;
  const what = DEV.includes(role)
    ? `${ENDS} a PROD service, or one with a PROD read replica set`
    : 'do this';
  return (
    `a key with the role ${role} may not ${what}; ` +
    `this needs a key with the role ${allowed.join(' or ')}`
  );
}

/** Why a role may not perform an action on a service, whatever its status; null: it may. */
export function denialOfAction(
  role: Role,
  action: Action,
  environment: Environment,
): string | null {
  return denial(role, permissionOfAction(action), environment);
}

/** A key, as GET /auth/info describes it. Older servers report no restrictions. */
export type KeyFacts = {
  public_key: string;
  role: Role;
  fork_only?: boolean;
  dry_run_only?: boolean;
};

/**
 * Why fork_only forbids a call; null: it does not.
 *
 * @param createdBy the key that made the service of the call, if it has one
 */
export function denialOfForkOnly(
  key: KeyFacts,
  { changes, forkOnly }: Permission,
  createdBy?: string | null,
): string | null {
  if (key.fork_only !== true || forkOnly === 'asRole' || createdBy === key.public_key) return null;
  return changes
    ? 'this key is fork_only: it reads, forks, and changes nothing but forks that it made'
    : 'this key is fork_only: it sees the data of forks that it made only; ' +
        'fork the service first (POST …/forkService)';
}

/** Why dry_run_only forbids a call, or leaves it without an effect; null: it does neither. */
export function denialOfDryRunOnly(
  { dry_run_only: dryRunOnly }: KeyFacts,
  permission: Permission,
): string | null {
  if (dryRunOnly !== true || permission.dryRunOnly === 'asRole') return null;
  return permission.dryRunOnly === 'dryRun'
    ? 'this key is dry_run_only: it makes dry runs only; use a key without dry_run_only'
    : 'this key is dry_run_only: it makes dry runs only. ' +
        'It reads no contents of databases and makes no links or sessions; ' +
        'use a key without dry_run_only';
}

/**
 * Why a key may not make a call in earnest; null: it may.
 *
 * @param of what the call is about, where it is about a service
 */
export function denialOfKey(
  key: KeyFacts,
  permission: Permission,
  of: { environment?: Environment; createdBy?: string | null | undefined } = {},
) {
  return (
    denial(key.role, permission, of.environment) ??
    denialOfForkOnly(key, permission, of.createdBy) ??
    denialOfDryRunOnly(key, permission)
  );
}

/**
 * Why the API refuses a call, be it as a dry run; null: it does not. For clients that must know
 * before they ask their user.
 */
export function refusalOfCall(
  key: KeyFacts,
  permission: Permission,
  of: { environment?: Environment; createdBy?: string | null | undefined } = {},
): string | null {
  const refused = denial(key.role, permission, of.environment);
  if (refused !== null) return refused;
  if (permission.dryRunOnly === 'never') return denialOfKey(key, permission, of);
  return denialOfForkOnly(key, permission, of.createdBy);
}

/** The permission that an action on a service needs. */
export const permissionOfAction = (action: Action): Permission =>
  PERMISSIONS[ACCESS[CALL_OF_ACTION[action]]];

/** Why a key may not manage keys; null: it may. */
export const denialOfKeys = (key: KeyFacts): string | null =>
  denialOfKey(key, PERMISSIONS[ACCESS.createKey]);

/** Why a key may change nothing but, if it is fork_only, forks that it made; null: it may. */
export const denialOfChanges = (key: KeyFacts, createdBy?: string | null): string | null =>
  denialOfKey(key, PERMISSIONS.change, { createdBy });

type Tagged = { metadata: { environment: Environment } };

/**
 * The environment that protects a service: a service takes its read replica sets along when it
 * stops, restarts or goes.
 */
export function protectionOf(environment: Environment, sets: readonly Tagged[]): Environment {
  return sets.some(({ metadata }) => metadata.environment === 'PROD') ? 'PROD' : environment;
}

/** A service as the role rules need it. */
export function subjectOf({
  metadata,
  read_replica_sets: sets,
  created_by: createdBy,
}: Tagged & { read_replica_sets: readonly Tagged[]; created_by?: string | undefined }): {
  environment: Environment;
  createdBy: string | undefined;
} {
  return { environment: protectionOf(metadata.environment, sets), createdBy };
}

/** The roles in words. */
export const ROLE_SUMMARIES: Record<Role, string> = {
  admin: 'may do everything',
  developer: `may do everything but manage keys, rename the project, and ${ENDS} PROD services`,
  viewer: 'reads everything but secrets and the contents of databases, and changes nothing',
};
