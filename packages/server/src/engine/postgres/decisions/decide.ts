/**
 * Chooses the next step for a service: a pure function of the desired and the observed state.
 * `applyStep` performs it.
 */
import { EXTENSION_STEPS } from '../../engine.ts';
import { RESET_STEP, UPGRADE_STEPS, type Origin, type Recovery, type Upgrade } from '../../spec.ts';
import type { Phase, StopMode } from '../postmaster-file.ts';
import type { PlacedSpec } from './placed-spec.ts';

/** How the start of a server compares with the desired one. */
export type StartSeen = 'current' | 'otherSettings' | 'restart';

/** Why a server is started again: settings are its size and its libraries. */
export const RESTART_WHY: Record<Exclude<StartSeen, 'current'>, string> = {
  otherSettings: 'for its new settings',
  restart: 'as requested',
};

/** The observed state of a running pooler. */
export type PoolerSeen = {
  /** Stopped by a signal. */
  frozen: boolean;
  /**
   * Whether its death would be reported; not after a start of the control plane, nor while its
   * clients wait.
   */
  watched: boolean;
  /** Whether its configuration is the desired one. */
  current: boolean;
  /** Whether it is in the desired network: that of its VPC, or none. */
  placed: boolean;
  /** Sessions of clients that may no longer connect. */
  disallowedSessions: number;
};

/**
 * The observed state of the relay of a service that may sleep: `held`: clients wait. `asleep`: the
 * first one has the server started. `waking`: that is under way. `awake`: clients are connected
 * to the server.
 */
export type RelaySeen = {
  state: 'held' | 'asleep' | 'waking' | 'awake';
  /** Whether it listens as desired, and would start the desired server. */
  current: boolean;
};

export type Observation = {
  /**
   * foreign: the directory of the service exists without our marker with its id. incomplete: it was
   * created, and not provisioned, before the machine went down. lost: it is there, without the data
   * of a server.
   */
  directory: 'absent' | 'foreign' | 'incomplete' | 'lost' | 'ours';
  /** Whether its first password was set. */
  provisioned: boolean;
  /** Whether its data was made by the requested restore, or none was requested. */
  recovered: boolean;
  /**
   * The requested upgrade. asked: its data is not made yet, or comes back; made: the data is
   * there, to be exchanged with the data of the service; done: none was requested, or it is in use.
   */
  upgrade: 'asked' | 'made' | 'done';
  /** Why no server can be started on its data; null: one can. */
  notStartable: string | null;
  templateReady: boolean;
  /**
   * placed: whether it is in the desired network: that of its VPC, or none. start: whether the
   * server was started with the size and libraries that are wanted, and since a restart was
   * requested. elsewhere: it listens on another port, since it gets a relay, or loses it.
   */
  server: { phase: Phase; start: StartSeen; placed: boolean; elsewhere?: true } | null;
  /** For how long it has not answered; null: it answers. */
  silentMs: number | null;
  /** Whether its files belong to the desired user, as which its server runs. */
  owned: boolean;
  connected: boolean;
  /** Whether nothing is known to be in the way of holding it to its size. */
  limited: boolean;
  /** Whether the files on disk are those that the spec asks for, and the bound of its CPU is. */
  filesCurrent: boolean;
  certificateCurrent: boolean;
  /** Whether its roles, rights and functions are those of this release. */
  contentsCurrent: boolean;
  /** The requested change of its extensions, if it can be made now and is not made yet. */
  extension: 'create' | 'drop' | null;
  /** The server's connection pooler, if one runs. */
  pooler: PoolerSeen | null;
  /** Sessions of clients that may no longer connect. */
  disallowedSessions: number;
  /** The relay before the server; null: none is open. */
  relay: RelaySeen | null;
};

export type Step =
  | { kind: 'settled' }
  | { kind: 'wait'; why: string; waitMs: number }
  | { kind: 'refuse'; why: string }
  | { kind: 'discard' }
  | { kind: 'makeTemplate' }
  | { kind: 'clone' }
  | { kind: 'fork'; origin: Origin }
  | { kind: 'setAside'; recovery: Recovery }
  | { kind: 'recover'; recovery: Recovery }
  | { kind: 'convert'; upgrade: Upgrade }
  | { kind: 'cloneBeside'; upgrade: Upgrade; origin: Origin }
  | { kind: 'exchange'; upgrade: Upgrade }
  | { kind: 'own' }
  | { kind: 'writeFiles' }
  | { kind: 'openRelay'; state: Exclude<RelaySeen['state'], 'waking'> }
  | { kind: 'closeRelay' }
  | { kind: 'start' }
  | { kind: 'connect' }
  | { kind: 'limit' }
  | { kind: 'renewCertificate' }
  | { kind: 'reload' }
  | { kind: 'updateContents' }
  | { kind: 'createExtension' }
  | { kind: 'dropExtension' }
  | { kind: 'endSessions' }
  | { kind: 'setFirstPassword'; verifier: string }
  | { kind: 'startPooler' }
  | { kind: 'reloadPooler' }
  | { kind: 'stopPooler'; why: string }
  | { kind: 'stop'; mode: StopMode; why: string };

/** A step that does something. */
export type ActiveStep = Exclude<Step, { kind: 'settled' | 'wait' | 'refuse' }>;

/** A decision that changes nothing: all is done, or something has to be waited for. */
export type Ending = Exclude<Step, ActiveStep>;

/** @returns the ending of a step that changes nothing; null: it does something */
export function endingOf(step: Step): Ending | null {
  return isEnding(step) ? step : null;
}

/** Whether a step changes nothing. */
export function isEnding(step: Step): step is Ending {
  return step.kind === 'settled' || step.kind === 'wait' || step.kind === 'refuse';
}

/** The name of each step as a user reads it. */
export const STEP_NAME: Record<Exclude<Step['kind'], 'settled' | 'wait' | 'refuse'>, string> = {
  discard: 'discard incomplete data',
  makeTemplate: 'create template',
  clone: 'clone template',
  fork: 'clone parent',
  setAside: 'set data aside',
  recover: 'restore data',
  convert: UPGRADE_STEPS[0],
  cloneBeside: RESET_STEP,
  exchange: UPGRADE_STEPS[1],
  own: 'change owner of files',
  writeFiles: 'write configuration',
  openRelay: 'prepare endpoint',
  closeRelay: 'close endpoint',
  start: 'start PostgreSQL',
  connect: 'connect',
  limit: 'enforce resource limits',
  renewCertificate: 'renew certificate',
  reload: 'reload configuration',
  updateContents: 'update roles and functions',
  createExtension: EXTENSION_STEPS[0],
  dropExtension: EXTENSION_STEPS[1],
  endSessions: 'terminate disallowed sessions',
  setFirstPassword: 'set password',
  startPooler: 'start connection pooler',
  reloadPooler: 'reload connection pooler',
  stopPooler: 'stop connection pooler',
  stop: 'stop PostgreSQL',
};

/**
 * A server that does not answer is killed only after this long, as `lib/patience.ts` counts it.
 * PostgreSQL recovers from its WAL, but every session is lost.
 */
export const KILL_AFTER_MS = 20_000;

/** Chooses the next step. Its parts are in the order of their urgency. */
export function decide(spec: PlacedSpec, seen: Observation): Step {
  const first = decideFirst(spec, seen) ?? decideOwnerOfPooler(seen) ?? waitForUnseenServer(seen);
  if (first !== null) return first;
  const step =
    decideReplaced(spec, seen) ??
    decideUpgrade(spec, seen) ??
    (seen.server === null ? decideStopped(spec, seen) : decideRunning(spec, seen, seen.server));
  return decideBeforeData(spec, seen, step) ?? step;
}

/**
 * The step that comes before all others, whichever servers a service has: nothing is done in a
 * directory that is not ours, and a pooler that must not run stops. null: none.
 */
export function decideFirst(
  spec: PlacedSpec,
  { directory, pooler }: Pick<Observation, 'directory' | 'pooler'>,
): Step | null {
  if (directory === 'foreign') {
    return {
      kind: 'refuse',
      why: 'its directory exists and was not made by Howdah; move it out of the way',
    };
  }
  if (pooler === null) return null;
  if (spec.pooler === null || spec.power === 'paused') {
    return { kind: 'stopPooler', why: spec.pooler === null ? 'disabled' : 'paused' };
  }
  // The old listener is closed before another one is opened.
  return pooler.placed ? null : { kind: 'stopPooler', why: placeWhy(spec) };
}

/** The pooler runs as the user of the server. */
function decideOwnerOfPooler({ pooler, owned }: Observation): Step | null {
  return pooler !== null && !owned ? { kind: 'stopPooler', why: OWN_WHY } : null;
}

/**
 * The activator starts a server that cannot be seen yet. Until it can, nothing is done beside it:
 * the data has one server, and a service that is stopped or deleted has none.
 */
function waitForUnseenServer({ server, relay }: Observation): Step | null {
  return server === null && relay?.state === 'waking' ? WAKING : null;
}

/** Steps that make, move or replace data, or give it to another user. */
const AT_DATA: ReadonlySet<Step['kind']> = new Set([
  'discard',
  'clone',
  'fork',
  'setAside',
  'recover',
  'convert',
  'exchange',
  'own',
]);

/**
 * A client must not have a server started on data that a step replaces: its writes would be lost.
 * Only a relay that is asleep starts a server. A relay that is awake without a server may have
 * been seen later than the server was looked for. null: the step can be made.
 */
function decideBeforeData(
  spec: PlacedSpec,
  { relay, server }: Observation,
  { kind }: Step,
): Step | null {
  if (relay === null || relay.state === 'held' || !AT_DATA.has(kind)) return null;
  if (server !== null && relay.state !== 'asleep') return null;
  return mustHaveRelay(spec) ? { kind: 'openRelay', state: 'held' } : { kind: 'closeRelay' };
}

/** Data that a requested restore replaces is set aside first; null: there is none. */
export function decideReplaced({ power, recovery }: PlacedSpec, seen: Observation): Step | null {
  if (recovery === null || power === 'paused' || seen.recovered) return null;
  // The last WAL of the replaced data is read where it is: no shutdown is needed.
  if (seen.server !== null) return { kind: 'stop', mode: 'immediate', why: 'its data is restored' };
  return seen.directory === 'absent' ? null : { kind: 'setAside', recovery };
}

/**
 * A requested upgrade or reset. Its steps stop the servers themselves: they keep running while it
 * has to wait for others. null: nothing is left of it to do.
 */
export function decideUpgrade({ power, upgrade }: PlacedSpec, seen: Observation): Step | null {
  if (upgrade === null || power === 'paused' || seen.upgrade === 'done') return null;
  if (seen.upgrade === 'made' || upgrade.undo) return { kind: 'exchange', upgrade };
  if (seen.directory !== 'ours') return null;
  const { reset: origin } = upgrade;
  if (origin === undefined) return { kind: 'convert', upgrade };
  // The server of the fork is asked for the password that the new data gets.
  return seen.connected && seen.silentMs === null ? { kind: 'cloneBeside', upgrade, origin } : null;
}

/**
 * Why a service that was provisioned is not made again: its data is missing, or there is other
 * data; null: it is not lost, or it is being restored.
 */
export function whyLost(
  { id, provisioned, recovery }: Pick<PlacedSpec, 'id' | 'provisioned' | 'recovery'>,
  seen: Pick<Observation, 'directory' | 'provisioned'>,
): string | null {
  if (recovery !== null || !(provisioned || seen.provisioned)) return null;
  switch (seen.directory) {
    case 'absent':
    case 'lost':
      return (
        'its data is missing: mount its disk, bring its data back, or restore it from its ' +
        `backups (howdah service recover ${id})`
      );
    case 'incomplete':
    case 'ours':
      return seen.provisioned
        ? null
        : `its data is not the data that it was provisioned with: bring that back, or restore it ` +
            `from its backups (howdah service recover ${id})`;
    case 'foreign':
      return null;
  }
}

/** No server runs: its data is made, and it is started. */
function decideStopped(spec: PlacedSpec, seen: Observation): Step {
  if (!seen.owned && seen.directory === 'ours') return { kind: 'own' };
  if (seen.relay !== null && !mustHaveRelay(spec)) return { kind: 'closeRelay' };
  if (spec.power === 'paused') return { kind: 'settled' };
  if (seen.notStartable !== null) return { kind: 'refuse', why: seen.notStartable };
  const lost = whyLost(spec, seen);
  if (lost !== null) return { kind: 'refuse', why: lost };
  if (seen.directory === 'incomplete') return { kind: 'discard' };
  if (seen.directory !== 'ours' && spec.recovery !== null)
    return { kind: 'recover', recovery: spec.recovery };
  if (seen.directory === 'lost') return { kind: 'discard' };
  if (seen.directory === 'absent' && spec.origin !== null)
    return { kind: 'fork', origin: spec.origin };
  if (seen.directory === 'absent')
    return seen.templateReady ? { kind: 'clone' } : { kind: 'makeTemplate' };
  const atRelay = decideAsleep(spec, seen);
  if (atRelay !== null) return atRelay;
  if (!seen.filesCurrent || !seen.certificateCurrent) return { kind: 'writeFiles' };
  return { kind: 'start' };
}

const mustHaveRelay = ({ serverPort, power }: PlacedSpec): boolean =>
  serverPort !== undefined && power === 'running';

/** The server of a service with a relay does not run. null: it must be started. */
function decideAsleep(spec: PlacedSpec, seen: Observation): Step | null {
  if (!mustHaveRelay(spec)) return null;
  const { relay, provisioned, filesCurrent, certificateCurrent } = seen;
  const staysAsleep =
    spec.sleep?.mayStay === true &&
    provisioned &&
    (relay === null ? spec.sleep.isAsleep : relay.state === 'asleep');
  const state = staysAsleep ? 'asleep' : 'held';
  if (relay?.current !== true || relay.state !== state) return { kind: 'openRelay', state };
  if (!staysAsleep) return null;
  return filesCurrent && certificateCurrent ? { kind: 'settled' } : { kind: 'writeFiles' };
}

const WAKING: Step = {
  kind: 'wait',
  why: 'the first client has the server started',
  waitMs: 20,
};

/** The step for the relay of a server that is ready; null: it is as desired. */
function decideRelayOfReady(spec: PlacedSpec, { relay }: Observation): Step | null {
  if (!mustHaveRelay(spec)) return relay === null ? null : { kind: 'closeRelay' };
  return relay?.current === true && relay.state === 'awake'
    ? null
    : { kind: 'openRelay', state: 'awake' };
}

function decideRunning(
  spec: PlacedSpec,
  seen: Observation,
  server: NonNullable<Observation['server']>,
): Step {
  if (spec.power === 'paused') return { kind: 'stop', mode: 'fast', why: 'paused' };
  if (seen.silentMs !== null && seen.silentMs >= KILL_AFTER_MS) {
    return {
      kind: 'stop',
      mode: 'kill',
      why: `it had not answered for ${Math.round(seen.silentMs / 1000)} s`,
    };
  }
  if (server.phase === 'stopping')
    return { kind: 'wait', why: 'the server is shutting down', waitMs: 20 };
  if (server.phase === 'starting')
    return {
      kind: 'wait',
      why: 'the server is starting; after a crash it first recovers from its WAL',
      waitMs: 20,
    };
  if (seen.silentMs !== null && seen.connected) {
    return {
      kind: 'wait',
      why: `the server does not answer; after ${KILL_AFTER_MS / 1000} s it is started again`,
      waitMs: 500,
    };
  }
  // The activator connects its clients first: a server that it has just started and that stops
  // would leave them waiting, or refused.
  if (seen.relay?.state === 'waking') return WAKING;
  // A server that could not be started again is not stopped.
  if (seen.notStartable !== null && !(seen.owned && server.placed && server.start === 'current'))
    return { kind: 'refuse', why: seen.notStartable };
  if (!seen.owned) return { kind: 'stop', mode: 'fast', why: OWN_WHY };
  // An extension goes before its library does.
  if (seen.connected && seen.extension === 'drop') return { kind: 'dropExtension' };
  if (!server.placed) return { kind: 'stop', mode: 'fast', why: placeWhy(spec) };
  if (server.start !== 'current')
    return { kind: 'stop', mode: 'fast', why: RESTART_WHY[server.start] };
  if (server.elsewhere === true) return { kind: 'stop', mode: 'fast', why: relayWhy(spec) };
  const atRelay = decideRelayOfReady(spec, seen);
  if (atRelay !== null) return atRelay;
  if (!seen.connected) return { kind: 'connect' };
  if (!seen.certificateCurrent) return { kind: 'renewCertificate' };
  if (!seen.filesCurrent) return { kind: 'reload' };
  if (seen.disallowedSessions > 0) return { kind: 'endSessions' };
  if (!seen.contentsCurrent) return { kind: 'updateContents' };
  if (seen.extension === 'create') return { kind: 'createExtension' };
  if (!seen.limited) return { kind: 'limit' };
  if (!seen.provisioned && spec.firstVerifier !== null)
    return { kind: 'setFirstPassword', verifier: spec.firstVerifier };
  return spec.pooler === null ? { kind: 'settled' } : decidePooler(seen.pooler);
}

const OWN_WHY = 'to run as a user of its own';

/** Why something is moved to the desired network. */
export function placeWhy({ vpc }: PlacedSpec): string {
  return vpc === null ? 'to leave its VPC' : `to move into the VPC ${vpc.id}`;
}

const relayWhy = ({ serverPort }: PlacedSpec): string =>
  serverPort === undefined ? 'to stay awake' : 'to be able to fall asleep';

/** The step for a desired pooler whose server is ready. */
export function decidePooler(seen: Observation['pooler']): Step {
  if (seen === null) return { kind: 'startPooler' };
  if (seen.frozen) return { kind: 'stopPooler', why: 'a signal had stopped it' };
  if (!seen.watched || !seen.current) return { kind: 'reloadPooler' };
  return seen.disallowedSessions > 0
    ? { kind: 'stopPooler', why: 'with sessions that are no longer allowed' }
    : { kind: 'settled' };
}
