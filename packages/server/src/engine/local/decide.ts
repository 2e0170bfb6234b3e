/** What to do next for a service, as a pure function of what is wanted and what was observed. `apply` in index.ts does it. */
import type { Origin, ServiceSpec } from '../engine.ts';
import type { Phase, StopMode } from './server.ts';

export type Observation = {
  /** foreign: something stands where the service's directory belongs that lacks our marker with its id. */
  directory: 'absent' | 'foreign' | 'ours';
  /** Whether its first password was set. */
  born: boolean;
  templateReady: boolean;
  /** sizeCurrent: whether the server was started with the size that is wanted; only another size is worth a restart. */
  server: { phase: Phase; sizeCurrent: boolean } | null;
  /** For how long it has not answered; null: it answers. */
  silentMs: number | null;
  connected: boolean;
  /** Whether the files on disk are those that the spec asks for. */
  filesCurrent: boolean;
  certificateCurrent: boolean;
};

export type Step =
  | { kind: 'settled' }
  | { kind: 'wait'; why: string; waitMs: number }
  | { kind: 'refuse'; why: string }
  | { kind: 'makeTemplate' }
  | { kind: 'clone' }
  | { kind: 'fork'; origin: Origin }
  | { kind: 'writeFiles' }
  | { kind: 'start' }
  | { kind: 'connect' }
  | { kind: 'renewCertificate' }
  | { kind: 'reload' }
  | { kind: 'setFirstPassword'; verifier: string }
  | { kind: 'stop'; mode: StopMode; why: string };

/** The name of each step as a user reads it. */
export const STEP_NAME: Record<Exclude<Step['kind'], 'settled' | 'wait' | 'refuse'>, string> = {
  makeTemplate: 'make template',
  clone: 'clone template',
  fork: 'clone parent',
  writeFiles: 'write configuration',
  start: 'start PostgreSQL',
  connect: 'connect',
  renewCertificate: 'renew certificate',
  reload: 'reload configuration',
  setFirstPassword: 'set password',
  stop: 'stop PostgreSQL',
};

/**
 * A server that does not answer may be on a machine that is short of CPU: it is given this long before it is killed, from
 * which PostgreSQL recovers by its log, but every session is lost.
 */
export const KILL_AFTER_MS = 20_000;

export function decide(spec: ServiceSpec, seen: Observation): Step {
  if (seen.directory === 'foreign') {
    return { kind: 'refuse', why: 'its directory exists and was not made by Howdah; move it out of the way' };
  }
  if (seen.server !== null) return decideRunning(spec, seen, seen.server);
  if (spec.power === 'paused') return { kind: 'settled' };
  if (seen.directory === 'absent' && spec.origin !== null) return { kind: 'fork', origin: spec.origin };
  if (seen.directory === 'absent') return seen.templateReady ? { kind: 'clone' } : { kind: 'makeTemplate' };
  if (!seen.filesCurrent || !seen.certificateCurrent) return { kind: 'writeFiles' };
  return { kind: 'start' };
}

function decideRunning(spec: ServiceSpec, seen: Observation, server: NonNullable<Observation['server']>): Step {
  if (spec.power === 'paused') return { kind: 'stop', mode: 'fast', why: 'paused' };
  if (seen.silentMs !== null && seen.silentMs >= KILL_AFTER_MS) {
    return { kind: 'stop', mode: 'kill', why: `it had not answered for ${Math.round(seen.silentMs / 1000)} s` };
  }
  if (server.phase === 'stopping') return { kind: 'wait', why: 'the server is shutting down', waitMs: 20 };
  if (server.phase === 'starting')
    return { kind: 'wait', why: 'the server is starting; after a crash it first recovers from its log', waitMs: 20 };
  if (seen.silentMs !== null && seen.connected) {
    return { kind: 'wait', why: `the server does not answer; after ${KILL_AFTER_MS / 1000} s it is started anew`, waitMs: 500 };
  }
  if (!server.sizeCurrent) return { kind: 'stop', mode: 'fast', why: 'for its new size' };
  if (!seen.connected) return { kind: 'connect' };
  if (!seen.certificateCurrent) return { kind: 'renewCertificate' };
  if (!seen.filesCurrent) return { kind: 'reload' };
  if (!seen.born && spec.firstVerifier !== null) return { kind: 'setFirstPassword', verifier: spec.firstVerifier };
  return { kind: 'settled' };
}
