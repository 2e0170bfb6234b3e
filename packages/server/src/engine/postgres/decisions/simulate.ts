/** The observed state after a step that works, as a dry run assumes it. Pure. */
import type { Observation, Step, PoolerSeen } from './decide.ts';

/** A pooler as it is when all is well. */
export const POOLER_WELL: PoolerSeen = {
  frozen: false,
  watched: true,
  current: true,
  placed: true,
  disallowedSessions: 0,
};

/** A service without a pooler as it is when all is well. */
export const WELL: Observation = {
  directory: 'ours',
  provisioned: true,
  recovered: true,
  upgrade: 'done',
  notStartable: null,
  templateReady: true,
  server: { phase: 'ready', start: 'current', placed: true },
  silentMs: null,
  owned: true,
  connected: true,
  limited: true,
  filesCurrent: true,
  certificateCurrent: true,
  contentsCurrent: true,
  extension: null,
  pooler: null,
  disallowedSessions: 0,
  relay: null,
};

/** A decision settles within this many steps. */
const MOST_STEPS = 200;

/**
 * The names of the steps from an assumed state on, until nothing is left to do.
 *
 * @param decideNext the next step, its name and the state after it; null: it is settled, or cannot
 *   continue
 */
export function namesOfSteps<State>(
  from: State,
  decideNext: (state: State) => { name: string | null; after: State } | null,
): string[] {
  const names: string[] = [];
  let state = from;
  for (let round = 0; round < MOST_STEPS; round++) {
    const next = decideNext(state);
    if (next === null) break;
    if (next.name !== null) names.push(next.name);
    state = next.after;
  }
  return names;
}

const NO_SERVER = { server: null, connected: false, silentMs: null } as const;

/** The observed state after a step. A start gets through at once. */
export function afterStep(seen: Observation, step: Step): Observation {
  switch (step.kind) {
    case 'settled':
    case 'refuse':
      return seen;
    case 'openRelay':
      return { ...seen, relay: { state: step.state, current: true } };
    case 'closeRelay':
      return { ...seen, relay: null };
    case 'wait':
      return afterWait(seen);
    case 'discard':
      return { ...seen, directory: 'absent' };
    case 'makeTemplate':
      return { ...seen, templateReady: true };
    case 'setAside':
      return { ...seen, ...NO_SERVER, directory: 'lost', provisioned: false, recovered: true };
    case 'convert':
      return { ...seen, ...NO_SERVER, pooler: null, upgrade: 'made' };
    case 'cloneBeside':
      return { ...seen, upgrade: 'made' };
    case 'exchange':
      return {
        ...seen,
        ...NO_SERVER,
        pooler: null,
        directory: 'ours',
        upgrade: 'done',
        // Those of a reset stay, as its version does.
        filesCurrent: step.upgrade.reset !== undefined && seen.filesCurrent,
      };
    case 'clone':
    case 'fork':
    case 'recover':
      return {
        ...seen,
        recovered: true,
        directory: 'ours',
        provisioned: false,
        owned: true,
        filesCurrent: true,
        certificateCurrent: true,
      };
    case 'writeFiles':
      return { ...seen, filesCurrent: true, certificateCurrent: true };
    case 'start':
      return { ...seen, server: WELL.server, connected: true, silentMs: null };
    case 'connect':
      return { ...seen, connected: true, silentMs: null };
    case 'limit':
      return { ...seen, limited: true };
    case 'renewCertificate':
      return { ...seen, certificateCurrent: true };
    case 'reload':
      return { ...seen, filesCurrent: true };
    case 'updateContents':
      return { ...seen, contentsCurrent: true };
    case 'createExtension':
    case 'dropExtension':
      return { ...seen, extension: null };
    case 'own':
      return { ...seen, owned: true, filesCurrent: false };
    case 'endSessions':
      return { ...seen, disallowedSessions: 0 };
    case 'setFirstPassword':
      return { ...seen, provisioned: true };
    case 'startPooler':
    case 'reloadPooler':
      return { ...seen, pooler: POOLER_WELL };
    case 'stopPooler':
      return { ...seen, pooler: null };
    case 'stop':
      return { ...seen, ...NO_SERVER };
  }
}

/** The observed state after a wait that ends well. */
function afterWait(seen: Observation): Observation {
  const { server, relay, directory } = seen;
  if (relay?.state === 'waking') {
    // Without data the activator starts no server.
    if (directory !== 'ours') return { ...seen, relay: { ...relay, state: 'held' } };
    return {
      ...seen,
      server: server === null ? WELL.server : { ...server, phase: 'ready' },
      relay: { ...relay, state: 'awake' },
    };
  }
  if (server?.phase === 'ready') return { ...seen, silentMs: null };
  return server?.phase === 'starting'
    ? { ...seen, server: { ...server, phase: 'ready' } }
    : { ...seen, ...NO_SERVER };
}
