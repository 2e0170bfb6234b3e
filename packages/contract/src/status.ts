/**
 * The statuses of a service. OPTIMIZING is accepted when read, never produced; a
 * DELETED service is 404.
 */
export const SERVICE_STATUSES = [
  'QUEUED',
  'CONFIGURING',
  'READY',
  'UNSTABLE',
  'PAUSING',
  'PAUSED',
  'RESUMING',
  'UPGRADING',
  'DELETING',
  'DELETED',
  'OPTIMIZING',
] as const;
export type ServiceStatus = (typeof SERVICE_STATUSES)[number];

/** The statuses that a service of ours can be in. */
export type LiveStatus = Exclude<ServiceStatus, 'DELETED' | 'OPTIMIZING'>;
export const LIVE_STATUSES = SERVICE_STATUSES.filter(
  (s): s is LiveStatus => s !== 'DELETED' && s !== 'OPTIMIZING',
);

/** Whether the status ends by itself: clients poll as long as it is true. */
export const IS_TRANSITIONAL: Record<LiveStatus, boolean> = {
  QUEUED: true,
  CONFIGURING: true,
  READY: false,
  UNSTABLE: false,
  PAUSING: true,
  PAUSED: false,
  RESUMING: true,
  UPGRADING: true,
  DELETING: true,
};

/**
 * The kinds of operations. Howdah begins two by itself: `repair` when a running service cannot be
 * reached, `failover` when the primary of a service with replicas died.
 */
export const OPERATION_KINDS = [
  'create',
  'adopt',
  'fork',
  'start',
  'stop',
  'restart',
  'recover',
  'reset',
  'upgrade',
  'tryUpgrade',
  'undoUpgrade',
  'move',
  'resize',
  'enablePooler',
  'disablePooler',
  'updatePassword',
  'setEnvironment',
  'setPurpose',
  'rename',
  'setExpiry',
  'setAutoSuspend',
  'setBackupRetention',
  'setHA',
  'switchover',
  'drill',
  'attachToVPC',
  'detachFromVPC',
  'attachToAllowList',
  'detachFromAllowList',
  'repair',
  'failover',
  'delete',
  'restore',
  'verifyBackup',
  'runBackup',
  'enableExtension',
  'disableExtension',
] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

/** The kinds that run beside any other operation, and do not change the service. */
export const BESIDE_KINDS = [
  'verifyBackup',
  'runBackup',
  'tryUpgrade',
] as const satisfies OperationKind[];
export type BesideKind = (typeof BESIDE_KINDS)[number];

export const runsBeside = (kind: OperationKind): kind is BesideKind =>
  BESIDE_KINDS.some((one) => one === kind);

/**
 * Whether an operation can be cancelled: while it runs, before it has begun, or not, with an
 * alternative. It can be if that leaves the service as it was. Every other operation runs to its
 * end, even if processes die meanwhile: nothing could undo a half of it.
 */
export const CANCEL: Record<OperationKind, 'always' | 'queued' | { no: string }> = {
  create: { no: 'delete the service' },
  adopt: { no: 'delete the service' },
  fork: { no: 'delete the fork' },
  start: { no: 'stop the service once it runs' },
  stop: { no: 'start the service once it has stopped' },
  restart: { no: 'it ends by itself' },
  recover: { no: 'the data that it replaces stays; recover the service again, or delete it' },
  reset: { no: 'it ends by itself; reset the fork again once it is done' },
  upgrade: { no: 'undo the upgrade once it is done' },
  tryUpgrade: 'always',
  undoUpgrade: { no: 'upgrade the service again once it is done' },
  // Until its writes have begun in the other region.
  move: 'always',
  resize: { no: 'resize again once it is done' },
  enablePooler: { no: 'disable the pooler once it is done' },
  disablePooler: { no: 'enable the pooler once it is done' },
  updatePassword: { no: 'it was done when it was answered: set another password' },
  setEnvironment: { no: 'it was done when it was answered: set it again' },
  setPurpose: { no: 'it was done when it was answered: set it again' },
  rename: { no: 'it was done when it was answered: rename it again' },
  setExpiry: { no: 'it was done when it was answered: set it again' },
  setAutoSuspend: { no: 'set it again once it is done' },
  setBackupRetention: { no: 'it was done when it was answered: set it again' },
  setHA: { no: 'set it again once it is done' },
  switchover: 'queued',
  drill: 'queued',
  attachToVPC: { no: 'detach the service once it is done' },
  detachFromVPC: { no: 'attach the service once it is done' },
  attachToAllowList: { no: 'detach the service once it is done' },
  detachFromAllowList: { no: 'attach the service once it is done' },
  repair: { no: 'the service would stay unreachable; stop it, or delete it' },
  failover: { no: 'the service would stay without a primary' },
  delete: { no: 'restore the service once it is deleted' },
  restore: { no: 'delete the service again' },
  verifyBackup: 'always',
  runBackup: 'always',
  enableExtension: { no: 'disable the extension once it is done' },
  disableExtension: { no: 'enable the extension once it is done' },
};

export const OPERATION_STATUSES = ['queued', 'running', 'succeeded', 'failed'] as const;
export type OperationStatus = (typeof OPERATION_STATUSES)[number];

/** How a step of an operation went; interrupted: another change came first, or a cancel. */
export const STEP_OUTCOMES = ['running', 'ok', 'failed', 'interrupted'] as const;
export type StepOutcome = (typeof STEP_OUTCOMES)[number];

/** The unfinished operation of a service, as far as its status depends on it. */
export type UnderWay = {
  kind: OperationKind;
  /** Whether its first step has begun. */
  begun: boolean;
  /** Whether its last attempt failed; it is retried. */
  failing: boolean;
};

const STAYS_PAUSED: readonly OperationKind[] = [
  'setAutoSuspend',
  'restart',
  'resize',
  'restore',
  'enablePooler',
  'disablePooler',
  'attachToVPC',
  'detachFromVPC',
  'attachToAllowList',
  'detachFromAllowList',
];

/**
 * The status that a user sees: a pure function of the desired state, the observed state and the
 * unfinished operation.
 *
 * @param wanted whether the service must run
 * @param reachable whether it was seen to accept connections
 */
export function statusOf(
  wanted: 'running' | 'paused',
  reachable: boolean,
  underWay: UnderWay | null,
): LiveStatus {
  const settled = (): LiveStatus =>
    wanted === 'paused' ? 'PAUSED' : reachable ? 'READY' : 'UNSTABLE';
  if (underWay === null) return settled();
  if (underWay.kind === 'delete') return 'DELETING';
  // A paused service cannot be unreachable, also while its size, pooler or networks change.
  if (wanted === 'paused' && STAYS_PAUSED.includes(underWay.kind)) return 'PAUSED';
  if (underWay.failing) return 'UNSTABLE';
  switch (underWay.kind) {
    case 'create':
    case 'adopt':
    case 'fork':
      return underWay.begun ? 'CONFIGURING' : 'QUEUED';
    case 'start':
    case 'restore':
    case 'recover':
      return 'RESUMING';
    case 'stop':
      return 'PAUSING';
    case 'resize':
    case 'restart':
    case 'upgrade':
    case 'undoUpgrade':
      return 'UPGRADING';
    case 'reset':
    case 'move':
    case 'enablePooler':
    case 'disablePooler':
    case 'setAutoSuspend':
    case 'setHA':
    case 'switchover':
    case 'drill':
    case 'attachToVPC':
    case 'detachFromVPC':
    case 'enableExtension':
    case 'disableExtension':
    case 'attachToAllowList':
    case 'detachFromAllowList':
      return 'CONFIGURING';
    case 'repair':
    case 'failover':
      return 'UNSTABLE';
    case 'updatePassword':
    case 'setEnvironment':
    case 'setPurpose':
    case 'rename':
    case 'setExpiry':
    case 'setBackupRetention':
    case 'verifyBackup':
    case 'runBackup':
    case 'tryUpgrade':
      return settled();
  }
}

/** The statuses of a read replica set. */
export const REPLICA_SET_STATUSES = [
  'creating',
  'active',
  'resizing',
  'deleting',
  'error',
] as const;
export type ReplicaSetStatus = (typeof REPLICA_SET_STATUSES)[number];

/**
 * A set is a service too, and has the status of one. While its service is paused, the set is shown
 * as active, and as PAUSED among services.
 */
export const REPLICA_SET_STATUS: Record<LiveStatus, ReplicaSetStatus> = {
  QUEUED: 'creating',
  CONFIGURING: 'creating',
  READY: 'active',
  UNSTABLE: 'error',
  PAUSING: 'active',
  PAUSED: 'active',
  RESUMING: 'creating',
  UPGRADING: 'resizing',
  DELETING: 'deleting',
};

/**
 * {@link statusOf} for a read replica set: a new set is CONFIGURING from the beginning, and a
 * change of its pooler does not change its status.
 */
export function statusOfReplicaSet(
  wanted: 'running' | 'paused',
  reachable: boolean,
  underWay: UnderWay | null,
): LiveStatus {
  if (underWay?.kind === 'create') return statusOf(wanted, reachable, { ...underWay, begun: true });
  const quiet =
    underWay !== null &&
    !underWay.failing &&
    (underWay.kind === 'enablePooler' || underWay.kind === 'disablePooler');
  return statusOf(wanted, reachable, quiet ? null : underWay);
}

/**
 * The allowed transitions; every sequence of statuses that a client sees is a path of this table.
 */
export const TRANSITIONS: Record<LiveStatus, readonly LiveStatus[]> = {
  QUEUED: ['CONFIGURING', 'READY', 'UNSTABLE', 'DELETING'],
  CONFIGURING: ['READY', 'UNSTABLE', 'DELETING'],
  READY: ['UNSTABLE', 'PAUSING', 'UPGRADING', 'CONFIGURING', 'DELETING'],
  UNSTABLE: ['READY', 'PAUSING', 'RESUMING', 'UPGRADING', 'CONFIGURING', 'PAUSED', 'DELETING'],
  PAUSING: ['PAUSED', 'UNSTABLE', 'DELETING'],
  PAUSED: ['RESUMING', 'CONFIGURING', 'DELETING'],
  RESUMING: ['READY', 'UNSTABLE', 'DELETING'],
  UPGRADING: ['READY', 'UNSTABLE', 'DELETING'],
  // A deleted service can be restored for a while; its status is not visible in between.
  DELETING: ['RESUMING', 'PAUSED'],
};

/** The transitions of a read replica set: it is paused with its service, at any status. */
export const REPLICA_SET_TRANSITIONS: Record<LiveStatus, readonly LiveStatus[]> = {
  ...TRANSITIONS,
  CONFIGURING: [...TRANSITIONS.CONFIGURING, 'PAUSING'],
  RESUMING: [...TRANSITIONS.RESUMING, 'PAUSING'],
  UPGRADING: [...TRANSITIONS.UPGRADING, 'PAUSING'],
};
