/** The statuses of a service. OPTIMIZING is accepted when read, never produced; a DELETED service is 404. */
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
export const LIVE_STATUSES = SERVICE_STATUSES.filter((s): s is LiveStatus => s !== 'DELETED' && s !== 'OPTIMIZING');

/** Whether something is going on that ends by itself: clients poll while this holds. */
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

/** What an operation does. `repair` is begun by Howdah itself when a running service cannot be reached. */
export const OPERATION_KINDS = [
  'create',
  'fork',
  'start',
  'stop',
  'resize',
  'updatePassword',
  'setEnvironment',
  'rename',
  'repair',
  'delete',
  'restore',
] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

export const OPERATION_STATUSES = ['queued', 'running', 'succeeded', 'failed'] as const;
export type OperationStatus = (typeof OPERATION_STATUSES)[number];

/** What is under way on a service, as far as its status depends on it. */
export type UnderWay = {
  kind: OperationKind;
  /** Whether its first step has begun. */
  begun: boolean;
  /** Whether its last attempt failed; it is retried. */
  failing: boolean;
};

/**
 * The status a user sees: one pure function of what is wanted, what was seen and what is under way.
 *
 * @param wanted whether the service shall run
 * @param reachable whether it was seen to accept connections
 */
export function statusOf(wanted: 'running' | 'paused', reachable: boolean, underWay: UnderWay | null): LiveStatus {
  const settled = (): LiveStatus => (wanted === 'paused' ? 'PAUSED' : reachable ? 'READY' : 'UNSTABLE');
  if (underWay === null) return settled();
  if (underWay.kind === 'delete') return 'DELETING';
  // A paused service has nothing that could be unreachable, whatever becomes of its new size.
  if ((underWay.kind === 'resize' || underWay.kind === 'restore') && wanted === 'paused') return 'PAUSED';
  if (underWay.failing) return 'UNSTABLE';
  switch (underWay.kind) {
    case 'create':
    case 'fork':
      return underWay.begun ? 'CONFIGURING' : 'QUEUED';
    case 'start':
    case 'restore':
      return 'RESUMING';
    case 'stop':
      return 'PAUSING';
    case 'resize':
      return 'UPGRADING';
    case 'repair':
      return 'UNSTABLE';
    case 'updatePassword':
    case 'setEnvironment':
    case 'rename':
      return settled();
  }
}

/** The moves between statuses that may be seen; every sequence a client sees is a path of this table. */
export const TRANSITIONS: Record<LiveStatus, readonly LiveStatus[]> = {
  QUEUED: ['CONFIGURING', 'READY', 'UNSTABLE', 'DELETING'],
  CONFIGURING: ['READY', 'UNSTABLE', 'DELETING'],
  READY: ['UNSTABLE', 'PAUSING', 'UPGRADING', 'CONFIGURING', 'DELETING'],
  UNSTABLE: ['READY', 'PAUSING', 'RESUMING', 'UPGRADING', 'CONFIGURING', 'PAUSED', 'DELETING'],
  PAUSING: ['PAUSED', 'UNSTABLE', 'DELETING'],
  PAUSED: ['RESUMING', 'DELETING'],
  RESUMING: ['READY', 'UNSTABLE', 'DELETING'],
  UPGRADING: ['READY', 'UNSTABLE', 'DELETING'],
  // A deleted service can be restored for a while; nobody sees it in between.
  DELETING: ['RESUMING', 'PAUSED'],
};
