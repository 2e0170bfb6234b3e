/**
 * Chooses the next step for a read replica set: a pure function of the desired and the observed
 * state. `applyToSet` performs it.
 *
 * The first rule: no client is routed to a server that could accept writes.
 */
import {
  decideFirst,
  decidePooler,
  placeWhy,
  STEP_NAME,
  type Observation,
  type Step,
  type PoolerSeen,
} from './decide.ts';
import { decideStandby, type InstanceSeen, type ListenerSeen } from './decide-ha.ts';
import type { PlacedSpec } from './placed-spec.ts';

export type NodeSeen = InstanceSeen & {
  /** Whether a server that runs says that it is none that follows. */
  takesWrites: boolean;
  /** Whether the gateway routes to it, and whether it must. */
  serving: boolean;
  eligible: boolean;
};

export type SetSeen = {
  directory: Observation['directory'];
  nodes: readonly NodeSeen[];
  gateway: ListenerSeen & { running: boolean };
  /** Whether the primary can be asked, and accepts writes. */
  primaryReady: boolean;
  /** Whether the primary has a slot for each node. */
  slotsCurrent: boolean;
  pooler: PoolerSeen | null;
  /** Whether its files belong to the user of the service that it follows. */
  owned: boolean;
};

export type SetStep =
  | { kind: 'make' }
  | { kind: 'own' }
  | { kind: 'server'; n: number; step: Step }
  | { kind: 'fence'; n: number }
  | { kind: 'openGateway' }
  | { kind: 'closeGateway'; why: string }
  | { kind: 'allowNetworks' }
  | { kind: 'balance' }
  | { kind: 'setSlots' }
  | { kind: 'seed'; n: number; why: string }
  | { kind: 'restart'; n: number }
  | { kind: 'pooler'; step: Step };

/** The name of a step as users read it; null: it changes nothing. */
export function setStepName(step: SetStep): string | null {
  switch (step.kind) {
    case 'make':
      return 'create directory';
    case 'own':
      return 'change owner of files';
    case 'server':
    case 'pooler': {
      const { step: own } = step;
      if (own.kind === 'settled' || own.kind === 'wait' || own.kind === 'refuse') return null;
      return step.kind === 'pooler'
        ? STEP_NAME[own.kind]
        : `${STEP_NAME[own.kind]} (node ${step.n})`;
    }
    case 'fence':
      return `stop second writer (node ${step.n})`;
    case 'openGateway':
      return 'start gateway';
    case 'closeGateway':
      return 'stop gateway';
    case 'allowNetworks':
      return 'configure allowed networks';
    case 'balance':
      return 'route gateway to nodes';
    case 'setSlots':
      return 'configure replication slots';
    case 'seed':
      return `clone primary (node ${step.n})`;
    case 'restart':
      return `restart node ${step.n}`;
  }
}

const WAIT_MS = 50;
/** A node that is far behind takes a while. */
const LAGGING_MS = 1000;

/** Chooses the next step. Its parts are in the order of their urgency. */
export function decideSet(spec: PlacedSpec, seen: SetSeen): SetStep {
  const first = decideFirst(spec, seen);
  if (first !== null) return ofPooler(first);
  if (spec.power === 'paused') return decidePaused(seen);
  if (seen.directory === 'absent') return { kind: 'make' };
  if (!seen.owned) return { kind: 'own' };
  const { urgent, waiting, restarts } = needsOfNodes(spec, seen);
  return (
    decideRoutes(spec, seen) ??
    urgent ??
    decideWait(seen, waiting) ??
    decideOwnPooler(spec, seen) ??
    decideRestart(seen, restarts)
  );
}

const ofPooler = (step: Step): SetStep => ({ kind: 'pooler', step });

/** First: no second writer. Then the gateway, which nodes it routes to, and their slots. */
function decideRoutes(spec: PlacedSpec, { nodes, gateway, ...seen }: SetSeen): SetStep | null {
  const writer = nodes.find(
    ({ takesWrites, data, server }) => server !== null && (takesWrites || data === 'primary'),
  );
  if (writer !== undefined) return { kind: 'fence', n: writer.n };
  if (gateway.running && !gateway.placed) return { kind: 'closeGateway', why: placeWhy(spec) };
  if (!gateway.running) return { kind: 'openGateway' };
  if (!gateway.allowedNetworksCurrent) return { kind: 'allowNetworks' };
  if (nodes.some(({ serving, eligible }) => serving !== eligible)) return { kind: 'balance' };
  return seen.primaryReady && !seen.slotsCurrent ? { kind: 'setSlots' } : null;
}

type NodeNeeds = {
  /** A step that waits for no other node. */
  readonly urgent: SetStep | null;
  /** A node that waits for the primary. */
  readonly waiting: number | null;
  /** Nodes that are restarted one after the other. */
  readonly restarts: readonly NodeSeen[];
};

function needsOfNodes(spec: PlacedSpec, { nodes, primaryReady }: SetSeen): NodeNeeds {
  const restarts: NodeSeen[] = [];
  let waiting: number | null = null;
  const urgently = (urgent: SetStep): NodeNeeds => ({ urgent, waiting, restarts });
  for (const node of nodes) {
    const step = decideStandby(spec, node);
    if (step?.kind === 'seed') {
      if (primaryReady) return urgently({ kind: 'seed', n: node.n, why: step.why });
      // A node that runs stays as it is; the others come first.
      if (node.data !== 'standby' || node.server === null) waiting ??= node.n;
    } else if (step?.kind === 'server') {
      if (step.step.kind !== 'stop' || step.step.mode !== 'fast')
        return urgently({ kind: 'server', n: node.n, step: step.step });
      // The gateway does not reach a node in another network.
      if (node.server?.placed === false) return urgently({ kind: 'restart', n: node.n });
      restarts.push(node);
    }
  }
  return { urgent: null, waiting, restarts };
}

function decideWait({ nodes, primaryReady }: SetSeen, waiting: number | null): SetStep | null {
  if (waiting !== null)
    return ofPooler({
      kind: 'wait',
      why: `node ${waiting} waits for the primary`,
      waitMs: 4 * WAIT_MS,
    });
  const late = nodes.find(({ streaming }) => !streaming);
  if (late === undefined || !primaryReady) return null;
  return ofPooler({
    kind: 'wait',
    why: `node ${late.n} is catching up with the primary`,
    waitMs: WAIT_MS,
  });
}

/** The pooler of the set. The primary has its role. */
function decideOwnPooler(spec: PlacedSpec, { pooler, primaryReady }: SetSeen): SetStep | null {
  const own = spec.pooler === null ? null : decidePooler(pooler);
  if (own === null || own.kind === 'settled') return null;
  return own.kind === 'startPooler' && !primaryReady
    ? ofPooler({ kind: 'wait', why: 'its pooler waits for the primary', waitMs: 4 * WAIT_MS })
    : ofPooler(own);
}

/**
 * Nodes without connections are restarted at once, the others one at a time while the rest accept
 * connections.
 */
function decideRestart({ nodes }: SetSeen, restarts: readonly NodeSeen[]): SetStep {
  const restart = restarts.find(({ eligible }) => !eligible) ?? restarts[0];
  if (restart === undefined) return ofPooler({ kind: 'settled' });
  const lagging = nodes.find(({ n, eligible }) => n !== restart.n && !eligible);
  if (restart.eligible && lagging !== undefined)
    return ofPooler({
      kind: 'wait',
      why: `node ${lagging.n} is too far behind: another node cannot be restarted yet`,
      waitMs: LAGGING_MS,
    });
  return { kind: 'restart', n: restart.n };
}

function decidePaused({ nodes, gateway, owned }: SetSeen): SetStep {
  const running = nodes.find(({ server }) => server !== null);
  if (running !== undefined)
    return { kind: 'server', n: running.n, step: { kind: 'stop', mode: 'fast', why: 'paused' } };
  if (gateway.running) return { kind: 'closeGateway', why: 'paused' };
  return owned ? ofPooler({ kind: 'settled' }) : { kind: 'own' };
}
