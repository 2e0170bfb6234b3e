/** The state of a read replica set after a step that works, as a dry run assumes it. Pure. */
import type { PoolerSeen } from '../proxy/pooler.ts';
import type { NodeSeen, SetSeen, SetStep } from './decide-set.ts';
import type { Step } from './decide.ts';
import { afterServerStep, serverAbsent } from './simulate-cluster.ts';
import { POOLER_WELL } from './simulate.ts';

const GATEWAY_OPEN = { running: true, placed: true, allowedNetworksCurrent: true };

export const nodeAbsent = (n: number): NodeSeen => {
  const { upstream: _, ...absent } = serverAbsent(n);
  return { ...absent, streaming: false, takesWrites: false, serving: false, eligible: false };
};

/** The observed state after a step. */
export function afterSetStep(seen: SetSeen, step: SetStep): SetSeen {
  return withRoutes(afterOwnStep(seen, step));
}

/** Derives which nodes follow, and which of them get connections, from the rest. */
export function withRoutes(seen: SetSeen): SetSeen {
  return {
    ...seen,
    nodes: seen.nodes.map((node) => {
      const runs = node.data !== 'absent' && node.server?.phase === 'ready' && node.connected;
      const eligible =
        runs && node.silentMs === null && node.server?.placed === true && !node.takesWrites;
      const streaming = runs && node.broken === null && seen.primaryReady;
      return {
        ...node,
        eligible,
        streaming,
        takesWrites: node.server !== null && node.takesWrites,
      };
    }),
  };
}

function afterOwnStep(seen: SetSeen, step: SetStep): SetSeen {
  switch (step.kind) {
    case 'make':
      return { ...seen, directory: 'ours', owned: true };
    case 'own':
      return {
        ...closed(seen),
        owned: true,
        pooler: null,
        nodes: closed(seen).nodes.map((node) => ({ ...node, server: null, connected: false })),
      };
    case 'server':
      return atNode(seen, step.n, step.step);
    case 'fence':
      return change(seen, step.n, (node) => ({
        ...stopped(node),
        data: 'primary',
        takesWrites: false,
      }));
    case 'openGateway':
      return { ...closed(seen), gateway: GATEWAY_OPEN };
    case 'closeGateway':
      return closed(seen);
    case 'allowNetworks':
      return { ...seen, gateway: { ...seen.gateway, allowedNetworksCurrent: true } };
    case 'balance':
      return {
        ...seen,
        nodes: seen.nodes.map((node) => ({ ...node, serving: node.eligible })),
      };
    case 'setSlots':
      return { ...seen, slotsCurrent: true };
    case 'seed':
      return change(seen, step.n, () => ({ ...nodeAbsent(step.n), data: 'standby' }));
    case 'restart': {
      const written = change(seen, step.n, (node) => ({ ...stopped(node), filesCurrent: true }));
      return atNode(written, step.n, { kind: 'start' });
    }
    case 'pooler':
      return { ...seen, pooler: afterPoolerStep(seen.pooler, step.step) };
  }
}

function closed(seen: SetSeen): SetSeen {
  return {
    ...seen,
    gateway: { ...GATEWAY_OPEN, running: false },
    nodes: seen.nodes.map((node) => ({ ...node, serving: false })),
  };
}

const stopped = (node: NodeSeen): NodeSeen => ({
  ...node,
  server: null,
  connected: false,
  silentMs: null,
  serving: false,
});

function change(seen: SetSeen, n: number, by: (node: NodeSeen) => NodeSeen): SetSeen {
  return { ...seen, nodes: seen.nodes.map((node) => (node.n === n ? by(node) : node)) };
}

/** A node that starts or stops gets no connections until it is routed to again. */
function atNode(seen: SetSeen, n: number, step: Step): SetSeen {
  const isRouted = step.kind !== 'start' && step.kind !== 'stop';
  return change(seen, n, (node) => {
    const after = afterServerStep({ ...node, upstream: null }, step, { port: n, upstream: null });
    const { upstream: _, ...server } = after;
    return { ...node, ...server, serving: node.serving && isRouted };
  });
}

function afterPoolerStep(pooler: PoolerSeen | null, step: Step): PoolerSeen | null {
  switch (step.kind) {
    case 'startPooler':
    case 'reloadPooler':
      return POOLER_WELL;
    case 'stopPooler':
      return null;
    default:
      return pooler;
  }
}
