/** A cluster as a dry run assumes it, and the state after each step that works. Pure. */
import { nextQuorum, NOBODY, quorumSetting, type Quorum } from '../replication/replication-conf.ts';
import {
  hangs,
  type HaStep,
  type InstanceSeen,
  type ClusterSeen,
  type GatewaySeen,
} from './decide-ha.ts';
import type { Observation, Step, StartSeen, PoolerSeen } from './decide.ts';
import { choosePlanned, type Successor } from './failover.ts';
import type { PlacedCluster, PlacedSpec } from './placed-spec.ts';
import { afterStep, WELL, POOLER_WELL } from './simulate.ts';
import type { NodeSeen, SetSeen, SetStep } from './decide-set.ts';

/** A server of a cluster: what is observed of it alone. */
export type AssumedServer = Omit<InstanceSeen, 'streaming'> & {
  /** The server that its replication settings name as its primary; null: it is to be one. */
  readonly upstream: number | null;
};

/** The parts of a cluster. Who follows, and which files are current, is a consequence of them. */
export type AssumedCluster = {
  readonly ha: PlacedCluster;
  /** The service, as `decide` observes it: without its server. */
  readonly rules: Observation;
  readonly servers: readonly AssumedServer[];
  readonly gateway: GatewaySeen;
  /** The servers that the primary has a slot for. */
  readonly slots: readonly number[];
  /** Whom the primary waits for, by its file. */
  readonly quorum: Quorum;
  readonly rehearsed: boolean;
};

export const GATEWAY_CLOSED: GatewaySeen = {
  running: false,
  routesToPort: null,
  placed: true,
  allowedNetworksCurrent: true,
};

export const serverAbsent = (n: number): AssumedServer => ({
  n,
  data: 'absent',
  server: null,
  connected: false,
  silentMs: null,
  filesCurrent: true,
  certificateCurrent: true,
  broken: null,
  upstream: null,
});

/** The assumed cluster as a round observes it. */
export function observed(spec: PlacedSpec, assumed: AssumedCluster): ClusterSeen {
  const { ha, rules, gateway, slots, rehearsed } = assumed;
  const servers = allServers(assumed);
  const others = othersOf(ha);
  const streaming = streamingOf(assumed);
  const own = servers.find(({ n }) => n === ha.primary) ?? serverAbsent(ha.primary);
  const made = servers.filter(({ n, data }) => others.includes(n) && data !== 'absent');
  return {
    primary: {
      ...asSingle(own, rules),
      filesCurrent: areFilesCurrent(assumed, own),
      silentMs: others.length === 0 ? own.silentMs : null,
      // An extension needs its library.
      extension:
        rules.extension === 'create' && own.server?.size !== 'current' ? null : rules.extension,
      ...(own.server === null
        ? {}
        : { server: { phase: own.server.phase, start: 'current', placed: true } }),
    },
    instances: servers.map((server) => ({
      ...server,
      filesCurrent: areFilesCurrent(assumed, server),
      streaming: streaming.includes(server.n),
    })),
    gateway,
    slotsCurrent:
      !canBeAsked(own) ||
      (made.every(({ n }) => slots.includes(n)) && slots.every((n) => others.includes(n))),
    settling: false,
    rehearsed,
    successor: successorOf(spec, assumed, own),
  };
}

const othersOf = ({ servers, primary }: PlacedCluster): number[] =>
  servers.map(({ n }) => n).filter((n) => n !== primary);

/** All that exist or are desired. */
function allServers({ ha, servers }: AssumedCluster): AssumedServer[] {
  const missing = ha.servers.filter(({ n }) => !servers.some((server) => server.n === n));
  return [...servers, ...missing.map(({ n }) => serverAbsent(n))];
}

/** Whether a primary says who follows it. */
const canBeAsked = ({ server, connected, data }: AssumedServer): boolean =>
  server?.phase === 'ready' && connected && data === 'primary';

function streamingOf({ ha, servers, slots }: AssumedCluster): number[] {
  const primary = servers.find(({ n }) => n === ha.primary);
  if (primary === undefined || !canBeAsked(primary)) return [];
  const wanted = othersOf(ha);
  return servers
    .filter(
      ({ n, data, server, connected, upstream, broken }) =>
        wanted.includes(n) &&
        data === 'standby' &&
        server?.phase === 'ready' &&
        connected &&
        upstream === ha.primary &&
        broken === null &&
        slots.includes(n),
    )
    .map(({ n }) => n);
}

/** Whom the primary has to wait for now. */
function quorumOf(assumed: AssumedCluster): Quorum {
  const { ha, servers, quorum } = assumed;
  const primary = servers.find(({ n }) => n === ha.primary);
  return primary !== undefined && canBeAsked(primary)
    ? nextQuorum(ha.sync, othersOf(ha), streamingOf(assumed), quorum)
    : quorum;
}

function areFilesCurrent(assumed: AssumedCluster, server: AssumedServer): boolean {
  const { ha, quorum } = assumed;
  if (!server.filesCurrent) return false;
  if (server.n !== ha.primary) return server.upstream === ha.primary;
  return server.upstream === null && quorumSetting(quorum) === quorumSetting(quorumOf(assumed));
}

/** A standby that runs has all that was written. */
function successorOf(
  { power }: PlacedSpec,
  { ha, rules, servers }: AssumedCluster,
  own: AssumedServer,
): Successor | null {
  const isDead = own.server === null || hangs(own);
  if (!isDead || !rules.provisioned || power === 'paused' || othersOf(ha).length === 0) return null;
  const next = choosePlanned(candidatesOf({ ha, servers }));
  return next === undefined
    ? { why: 'no other member runs and follows' }
    : { n: next.n, detail: 'it has all that was written' };
}

/** The standbys that can take over. */
function candidatesOf({ ha, servers }: Pick<AssumedCluster, 'ha' | 'servers'>): AssumedServer[] {
  const wanted = othersOf(ha);
  return servers.filter((server) => wanted.includes(server.n) && canTakeOver(server));
}

const canTakeOver = ({ data, server, connected, silentMs, broken }: AssumedServer): boolean =>
  data === 'standby' &&
  server?.phase === 'ready' &&
  connected &&
  silentMs === null &&
  broken === null;

function asSingle(
  { server, connected, silentMs, filesCurrent, certificateCurrent }: AssumedServer,
  rules: Observation,
): Observation {
  return {
    ...rules,
    server:
      server === null
        ? null
        : { phase: server.phase, start: startOf(server.size), placed: server.placed },
    connected,
    silentMs,
    filesCurrent,
    certificateCurrent,
  };
}

/** The start of a server as `decide` sees it. */
export const startOf = (size: NonNullable<InstanceSeen['server']>['size']): StartSeen =>
  size === 'current' || size === 'restart' ? size : 'otherSettings';

/** The server after a step at it. */
export function afterServerStep(
  server: AssumedServer,
  step: Step,
  { port, upstream }: { port: number; upstream: number | null },
): AssumedServer {
  const next = afterStep(asSingle(server, WELL), step);
  const isWritten = ['writeFiles', 'reload', 'clone', 'fork', 'recover'].includes(step.kind);
  return {
    ...server,
    data:
      step.kind === 'clone' || step.kind === 'fork' || step.kind === 'recover'
        ? 'primary'
        : step.kind === 'discard'
          ? 'absent'
          : server.data,
    server:
      next.server === null
        ? null
        : {
            frozen: false,
            ...(server.server ?? { port }),
            ...(step.kind === 'start' ? { port } : {}),
            phase: next.server.phase,
            size: next.server.start === 'current' ? 'current' : (server.server?.size ?? 'current'),
            placed: next.server.placed,
          },
    connected: next.connected,
    silentMs: next.silentMs,
    filesCurrent: next.filesCurrent,
    certificateCurrent: next.certificateCurrent,
    upstream: isWritten ? upstream : server.upstream,
  };
}

const START: Step = { kind: 'start' };
const NO_SERVER = { server: null, connected: false, silentMs: null } as const;

/** The cluster after a step. */
export function afterHaStep(assumed: AssumedCluster, step: HaStep): AssumedCluster {
  const { ha } = assumed;
  switch (step.kind) {
    case 'server':
      return atServer(assumed, step.n, step.step);
    case 'fence':
      return change(assumed, step.n, (server) => ({ ...server, ...NO_SERVER }));
    case 'failOver':
      return withPrimary(assumed, nextPrimaryOf(assumed), 'primary');
    case 'switchOver':
      return withPrimary(assumed, step.to, 'standby');
    case 'drill': {
      const data = ha.drill === 'switchover' ? 'standby' : 'primary';
      const after = withPrimary(assumed, nextPrimaryOf(assumed), data);
      return { ...after, ha: { ...after.ha, drill: null } };
    }
    case 'promote':
      return withPrimary(assumed, ha.primary, 'standby');
    case 'restart':
      return routed(restarted(assumed, { writesReplication: false }));
    case 'moveToGateway':
    case 'move':
      return routed(withGateway(restarted(assumed, { writesReplication: true })));
    case 'own':
      return owned(assumed);
    case 'seed':
      return seeded(assumed, step.n);
    case 'setSlots':
      return { ...assumed, slots: othersOf(ha) };
    case 'retire':
      return { ...assumed, servers: assumed.servers.filter(({ n }) => n !== step.n) };
    case 'sweepDrill':
      return { ...assumed, rehearsed: false };
    case 'startWithGateway':
      return withGateway(atServer(assumed, step.n, START));
    case 'openGateway':
      return withGateway(assumed);
    case 'routeGateway':
      return routed(assumed);
    case 'allowNetworks':
      return { ...assumed, gateway: { ...assumed.gateway, allowedNetworksCurrent: true } };
    case 'closeGateway':
      return { ...assumed, gateway: GATEWAY_CLOSED };
  }
}

function change(
  assumed: AssumedCluster,
  n: number,
  by: (server: AssumedServer) => AssumedServer,
): AssumedCluster {
  const servers = allServers(assumed).map((server) => (server.n === n ? by(server) : server));
  return { ...assumed, servers };
}

const portOf = ({ servers }: PlacedCluster, n: number): number =>
  servers.find((server) => server.n === n)?.port ?? 0;

function atServer(assumed: AssumedCluster, n: number, step: Step): AssumedCluster {
  const { ha } = assumed;
  const isPrimary = n === ha.primary;
  const upstream = isPrimary ? null : ha.primary;
  const place = { port: portOf(ha, n), upstream };
  const after = change(assumed, n, (server) => afterServerStep(server, step, place));
  if (!isPrimary) return after;
  const isWritten = step.kind === 'writeFiles' || step.kind === 'reload';
  return {
    ...after,
    rules: afterStep(assumed.rules, step),
    quorum: isWritten ? quorumOf(assumed) : assumed.quorum,
  };
}

/** The standby that takes over. */
function nextPrimaryOf(assumed: AssumedCluster): number {
  return choosePlanned(candidatesOf(assumed))?.n ?? assumed.ha.primary;
}

/** @param data what the former primary is after it */
function withPrimary(
  assumed: AssumedCluster,
  to: number,
  data: AssumedServer['data'],
): AssumedCluster {
  const { primary } = assumed.ha;
  const after =
    to === primary
      ? assumed
      : change(assumed, primary, (server) => ({ ...server, ...NO_SERVER, data }));
  // The file of a standby waits for nobody.
  return routed({
    ...change(after, to, (server) => ({ ...server, data: 'primary' })),
    ha: { ...assumed.ha, primary: to },
    slots: to === primary ? assumed.slots : [],
    quorum: NOBODY,
  });
}

/** The primary, stopped and started in the desired network with all of its files. */
function restarted(
  assumed: AssumedCluster,
  { writesReplication }: { writesReplication: boolean },
): AssumedCluster {
  const { primary } = assumed.ha;
  const started = atServer(
    change(assumed, primary, (server) => ({ ...server, filesCurrent: true })),
    primary,
    START,
  );
  return writesReplication
    ? {
        ...change(started, primary, (server) => ({ ...server, upstream: null })),
        quorum: quorumOf(assumed),
      }
    : started;
}

/** A gateway that was started in the desired network. */
const withGateway = (assumed: AssumedCluster): AssumedCluster => ({
  ...assumed,
  gateway: { ...GATEWAY_CLOSED, running: true },
});

function routed(assumed: AssumedCluster): AssumedCluster {
  const { ha, gateway } = assumed;
  // A gateway that does not run is started by a step of its own.
  return { ...assumed, gateway: { ...gateway, routesToPort: portOf(ha, ha.primary) } };
}

function owned(assumed: AssumedCluster): AssumedCluster {
  const stopped = assumed.servers.map((server) => ({
    ...server,
    ...NO_SERVER,
    filesCurrent: false,
  }));
  const rules = { ...assumed.rules, owned: true, pooler: null };
  const free = { ...assumed, servers: stopped, rules };
  return routed(withGateway(restarted(free, { writesReplication: true })));
}

function seeded(assumed: AssumedCluster, n: number): AssumedCluster {
  const { primary } = assumed.ha;
  const after = change(assumed, n, () => ({
    ...serverAbsent(n),
    data: 'standby',
    upstream: primary,
  }));
  return { ...after, slots: [...new Set([...assumed.slots, n])] };
}

// The state of a read replica set after a step that works, as a dry run assumes it. Pure.

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
      return changeNode(seen, step.n, (node) => ({
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
      return changeNode(seen, step.n, () => ({ ...nodeAbsent(step.n), data: 'standby' }));
    case 'restart': {
      const written = changeNode(seen, step.n, (node) => ({
        ...stopped(node),
        filesCurrent: true,
      }));
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

function changeNode(seen: SetSeen, n: number, by: (node: NodeSeen) => NodeSeen): SetSeen {
  return { ...seen, nodes: seen.nodes.map((node) => (node.n === n ? by(node) : node)) };
}

/** A node that starts or stops gets no connections until it is routed to again. */
function atNode(seen: SetSeen, n: number, step: Step): SetSeen {
  const isRouted = step.kind !== 'start' && step.kind !== 'stop';
  return changeNode(seen, n, (node) => {
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
