/**
 * What an action takes away from the users of a service. The only source of what PROD protects: the
 * API, the CLI, the console and `howdah mcp` ask for the name of the service by this table
 * (docs/decisions/0085-what-prod-protects.md).
 */
import type { Action } from './actions.ts';
import type { Environment } from './types.ts';

export type Effect = 'endsSessions' | 'closesEndpoint' | 'losesData' | 'losesProtection';

/** The effects of each action. An action without one asks for nothing. */
export const EFFECTS: Record<Action, readonly Effect[]> = {
  delete: ['endsSessions', 'closesEndpoint', 'losesData'],
  start: [],
  stop: ['endsSessions', 'closesEndpoint'],
  restart: ['endsSessions'],
  recover: ['endsSessions', 'losesData'],
  reset: ['endsSessions', 'losesData'],
  upgrade: ['endsSessions', 'closesEndpoint'],
  undoUpgrade: ['endsSessions', 'closesEndpoint', 'losesData'],
  move: ['endsSessions', 'closesEndpoint'],
  resize: ['endsSessions'],
  forkNow: [],
  forkPast: [],
  enablePooler: [],
  disablePooler: ['endsSessions', 'closesEndpoint'],
  // The first replica puts a gateway on the endpoint; fewer replicas keep fewer copies.
  setHA: ['endsSessions', 'losesProtection'],
  switchover: ['endsSessions'],
  drill: ['endsSessions'],
  attachToVPC: ['endsSessions', 'closesEndpoint'],
  detachFromVPC: ['endsSessions', 'losesProtection'],
  attachToAllowList: ['endsSessions', 'closesEndpoint'],
  detachFromAllowList: ['losesProtection'],
  updatePassword: ['endsSessions'],
  setEnvironment: ['losesProtection'],
  rename: [],
  // A PROD service never expires.
  setExpiry: [],
  // The server moves behind a relay of its endpoint, or from behind it.
  setAutoSuspend: ['endsSessions'],
  setBackupRetention: ['losesProtection'],
  verifyBackup: [],
  runBackup: [],
  createReplicaSet: [],
  changeReplicaSet: ['endsSessions'],
  deleteReplicaSet: ['endsSessions', 'closesEndpoint'],
  query: [],
  // A library that is loaded at the start of the servers needs a restart.
  enableExtension: ['endsSessions'],
  disableExtension: ['endsSessions', 'losesData'],
};

const WORDS: Record<Effect, string> = {
  endsSessions: 'ends sessions',
  closesEndpoint: 'closes an endpoint for its clients',
  losesData: 'loses data',
  losesProtection: 'takes protection away',
};

/** The effects of an action in words: "ends sessions and loses data". */
export function describeEffects(action: Action): string {
  const words = EFFECTS[action].map((effect) => WORDS[effect]);
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

/**
 * Actions whose calls Tiger's clients make, which send no name: the API does not require it, and
 * compares it if it is sent. The clients of Howdah ask for it.
 */
export const CALLED_WITHOUT_NAME = [
  'delete',
  'stop',
  'resize',
  'disablePooler',
  'setHA',
  'attachToVPC',
  'detachFromVPC',
  'attachToAllowList',
  'detachFromAllowList',
  'updatePassword',
  'setEnvironment',
  'setBackupRetention',
  'changeReplicaSet',
  'deleteReplicaSet',
] as const satisfies readonly Action[];

/** Whether a client asks its user for the name of the service before an action. */
export const asksForName = (action: Action, environment: Environment): boolean =>
  environment === 'PROD' && EFFECTS[action].length > 0;

/** Whether the API refuses an action without the name of the service. */
export const requiresName = (action: Action, environment: Environment): boolean =>
  asksForName(action, environment) && !CALLED_WITHOUT_NAME.some((one) => one === action);
