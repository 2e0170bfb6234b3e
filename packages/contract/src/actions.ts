import type { LiveStatus } from './status.ts';

/**
 * The changes of a service that depend on its status. Reads (get, list, logs, operations, metrics)
 * are always allowed.
 */
export const ACTIONS = [
  'delete',
  'start',
  'stop',
  'restart',
  'recover', // its lost data, from its backups
  'reset', // a fork, to the data of its parent
  'upgrade', // into a newer major version of PostgreSQL, or a trial of that
  'undoUpgrade',
  'move', // to another region
  'resize',
  'forkNow', // the data of this moment
  'forkPast', // the data of the last snapshot, or of a point in time
  'enablePooler',
  'disablePooler',
  'setHA',
  'switchover',
  'drill',
  'attachToVPC',
  'detachFromVPC',
  'attachToAllowList',
  'detachFromAllowList',
  'updatePassword',
  'setEnvironment',
  'rename',
  'setExpiry',
  'setAutoSuspend',
  'setBackupRetention',
  'verifyBackup',
  'runBackup',
  'createReplicaSet',
  'changeReplicaSet', // its size, its pooler
  'deleteReplicaSet',
  'query',
  'enableExtension',
  'disableExtension',
] as const;
export type Action = (typeof ACTIONS)[number];

/** The actions that may be impossible in a region, whatever the status of a service. */
export const REGIONAL_ACTIONS = [
  'forkNow',
  'forkPast',
  'reset',
  'enablePooler',
  'setHA',
  'switchover',
  'drill',
  'attachToVPC',
  'attachToAllowList',
  'verifyBackup',
  'runBackup',
  'createReplicaSet',
  'query',
  'enableExtension',
  'disableExtension',
  'setAutoSuspend',
] as const satisfies readonly Action[];
export type RegionalAction = (typeof REGIONAL_ACTIONS)[number];

/**
 * accept; underway: the same goal is already pursued (same answer, same
 * operation); refuse: 400 INVALID_STATE.
 */
export type Verdict = 'accept' | 'underway' | 'refuse';

type Row = Record<Action, Verdict>;

const row = (accepted: readonly Action[], underway: readonly Action[] = []): Row => {
  const verdict = (action: Action): Verdict =>
    accepted.includes(action) ? 'accept' : underway.includes(action) ? 'underway' : 'refuse';
  return {
    delete: verdict('delete'),
    start: verdict('start'),
    stop: verdict('stop'),
    restart: verdict('restart'),
    recover: verdict('recover'),
    reset: verdict('reset'),
    upgrade: verdict('upgrade'),
    undoUpgrade: verdict('undoUpgrade'),
    move: verdict('move'),
    resize: verdict('resize'),
    forkNow: verdict('forkNow'),
    forkPast: verdict('forkPast'),
    enablePooler: verdict('enablePooler'),
    disablePooler: verdict('disablePooler'),
    setHA: verdict('setHA'),
    switchover: verdict('switchover'),
    drill: verdict('drill'),
    attachToVPC: verdict('attachToVPC'),
    detachFromVPC: verdict('detachFromVPC'),
    attachToAllowList: verdict('attachToAllowList'),
    detachFromAllowList: verdict('detachFromAllowList'),
    updatePassword: verdict('updatePassword'),
    setEnvironment: verdict('setEnvironment'),
    rename: verdict('rename'),
    setExpiry: verdict('setExpiry'),
    setAutoSuspend: verdict('setAutoSuspend'),
    setBackupRetention: verdict('setBackupRetention'),
    verifyBackup: verdict('verifyBackup'),
    runBackup: verdict('runBackup'),
    createReplicaSet: verdict('createReplicaSet'),
    changeReplicaSet: verdict('changeReplicaSet'),
    deleteReplicaSet: verdict('deleteReplicaSet'),
    query: verdict('query'),
    enableExtension: verdict('enableExtension'),
    disableExtension: verdict('disableExtension'),
  };
};

/** These actions need no engine, and are allowed in each status but DELETING. */
const NOTED = ['setEnvironment', 'rename', 'setExpiry', 'setBackupRetention'] as const;
/** Allowed while the service is paused: it takes effect at the start. */
const POOLER = ['enablePooler', 'disablePooler'] as const;
const NETWORK = [
  'attachToVPC',
  'detachFromVPC',
  'attachToAllowList',
  'detachFromAllowList',
] as const;

/**
 * The actions that each status allows: the API, the CLI, the console and the tests read this table.
 */
export const ALLOWED: Record<LiveStatus, Row> = {
  QUEUED: row(['delete', ...NOTED]),
  CONFIGURING: row(['delete', ...NOTED, 'deleteReplicaSet']),
  READY: row([
    'delete',
    'stop',
    'restart',
    'reset',
    'upgrade',
    'undoUpgrade',
    'move',
    'resize',
    'forkNow',
    'forkPast',
    ...POOLER,
    'setHA',
    'switchover',
    'drill',
    ...NETWORK,
    'updatePassword',
    ...NOTED,
    'setAutoSuspend',
    'verifyBackup',
    'runBackup',
    'createReplicaSet',
    'changeReplicaSet',
    'deleteReplicaSet',
    'query',
    'enableExtension',
    'disableExtension',
  ]),
  UNSTABLE: row([
    'delete',
    'start',
    'stop',
    'restart',
    'recover',
    'undoUpgrade',
    'resize',
    'forkPast',
    ...POOLER,
    ...NETWORK,
    'updatePassword',
    ...NOTED,
    'verifyBackup',
    'runBackup',
    'changeReplicaSet',
    'deleteReplicaSet',
  ]),
  PAUSING: row(['delete', ...NOTED, 'deleteReplicaSet'], ['stop']),
  PAUSED: row([
    'delete',
    'start',
    'recover',
    'reset',
    'resize',
    'forkNow',
    'forkPast',
    ...POOLER,
    ...NETWORK,
    'updatePassword',
    ...NOTED,
    'setAutoSuspend',
    'verifyBackup',
    'runBackup',
    'deleteReplicaSet',
  ]),
  RESUMING: row(['delete', ...NOTED, 'deleteReplicaSet'], ['start']),
  UPGRADING: row(['delete', ...NOTED, 'deleteReplicaSet']),
  DELETING: row([], ['delete', 'deleteReplicaSet']),
};

/** The name of an action in a message: two are one call, with different values of a field. */
function wordsOf(action: Action): string {
  if (action === 'forkNow') return 'fork (NOW)';
  return action === 'forkPast' ? 'fork (LAST_SNAPSHOT, PITR)' : action;
}

/**
 * The message for an action that the status does not allow: it names the status, and those that
 * allow it.
 */
export function refusal(action: Action, status: LiveStatus): string {
  const allowedIn = Object.entries(ALLOWED).flatMap(([state, actions]) =>
    actions[action] === 'accept' ? [state] : [],
  );
  const nowAllowed = ACTIONS.filter((candidate) => ALLOWED[status][candidate] === 'accept');
  const now = nowAllowed.length === 0 ? 'nothing but waiting' : nowAllowed.map(wordsOf).join(', ');
  const words = wordsOf(action);
  return (
    `cannot ${words} a service that is ${status}: ` +
    `${words} is allowed when it is ${allowedIn.join(' or ')}; now allowed: ${now}`
  );
}
