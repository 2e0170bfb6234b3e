/**
 * Chooses the next step for a service with several members: a pure function of the desired and the
 * observed state. `applyToCluster` performs the step.
 *
 * The first rule: only the primary that the metadata database records accepts writes. Before it
 * does, every other server of the service that could accept writes is stopped.
 */
import { DRILL_STEP } from '../../engine.ts';
import {
  decide,
  decideFirst,
  decideUpgrade,
  placeWhy,
  RESTART_WHY,
  STEP_NAME,
  whyLost,
  type Observation,
  type Step,
} from './decide.ts';
import { choosePlanned, type Successor } from './failover.ts';
import type { Phase } from '../postmaster-file.ts';
import type { PlacedCluster, PlacedSpec } from './placed-spec.ts';

export type InstanceSeen = {
  n: number;
  /** The role that a server would have if it started on the data. */
  data: 'absent' | 'standby' | 'primary';
  /**
   * `size`: compared with the desired one, restart: the same, and a restart was requested; `port`:
   * where it listens; `placed`: whether it is in the desired network.
   */
  server: {
    phase: Phase;
    size: 'current' | 'smaller' | 'larger' | 'restart';
    port: number | null;
    frozen: boolean;
    placed: boolean;
  } | null;
  connected: boolean;
  silentMs: number | null;
  filesCurrent: boolean;
  certificateCurrent: boolean;
  /** Whether it streams from the primary; false for the primary itself. */
  streaming: boolean;
  /** Why it has to be seeded again; null: it need not. */
  broken: string | null;
};

/** Where a gateway listens, as observed. */
export type ListenerSeen = {
  /**
   * Whether it is in the desired network and has the configuration for it; true once it is started.
   */
  placed: boolean;
  /** Whether it allows the desired networks, and has no disallowed session. */
  allowedNetworksCurrent: boolean;
};

/** The observed gateway of a cluster. */
export type GatewaySeen = ListenerSeen & { running: boolean; routesToPort: number | null };

export type ClusterSeen = {
  /** The primary, as `decide` observes a single server. */
  primary: Observation;
  /** All members that exist or are desired. */
  instances: readonly InstanceSeen[];
  gateway: GatewaySeen;
  /** Whether the primary has a slot for each member, and no others. */
  slotsCurrent: boolean;
  /**
   * Whether synchronous standbys are still receiving what was acknowledged without them: only then
   * can one of them take over.
   */
  settling: boolean;
  /** Whether an interrupted drill has left something. */
  rehearsed: boolean;
  /** While the primary is dead or hangs: which standby can take over, or why none can. */
  successor: Successor | null;
};

export type HaStep =
  | { kind: 'server'; n: number; step: Step }
  | { kind: 'fence'; n: number }
  | { kind: 'failOver' }
  | { kind: 'promote' }
  | { kind: 'switchOver'; to: number; why: string }
  | { kind: 'restart'; why: string }
  | { kind: 'moveToGateway' }
  | { kind: 'own' }
  | { kind: 'move'; why: string }
  | { kind: 'allowNetworks' }
  | { kind: 'openGateway' }
  | { kind: 'startWithGateway'; n: number }
  | { kind: 'routeGateway' }
  | { kind: 'closeGateway'; why: string }
  | { kind: 'seed'; n: number; why: string }
  | { kind: 'setSlots' }
  | { kind: 'retire'; n: number }
  | { kind: 'sweepDrill' }
  | { kind: 'drill' };

/** The name of a step as users read it; null: it changes nothing. */
export function haStepName(step: HaStep): string | null {
  switch (step.kind) {
    case 'server':
      if (step.step.kind === 'settled' || step.step.kind === 'wait' || step.step.kind === 'refuse')
        return null;
      return `${STEP_NAME[step.step.kind]} (member ${step.n})`;
    case 'fence':
      return `stop second writer (member ${step.n})`;
    case 'failOver':
      return 'fail over';
    case 'promote':
      return 'promote';
    case 'switchOver':
      return `switch over to member ${step.to}`;
    case 'restart':
      return 'restart primary';
    case 'moveToGateway':
      return 'start gateway in front of primary';
    case 'own':
      return `${STEP_NAME.own} and restart`;
    case 'move':
      return 'move primary and gateway';
    case 'allowNetworks':
      return 'configure allowed networks';
    case 'openGateway':
      return 'start gateway';
    case 'startWithGateway':
      return `${STEP_NAME.start} (member ${step.n}) and gateway`;
    case 'routeGateway':
      return 'route gateway to primary';
    case 'closeGateway':
      return 'stop gateway';
    case 'seed':
      return `clone primary (member ${step.n})`;
    case 'setSlots':
      return 'configure replication slots';
    case 'retire':
      return `remove member ${step.n}`;
    case 'sweepDrill':
      return 'remove leftovers of a drill';
    case 'drill':
      return DRILL_STEP;
  }
}

/**
 * A member that has not answered for this long, as `lib/patience.ts` counts it, is stopped; one
 * that a signal has frozen is stopped sooner.
 */
export const HANGS_AFTER_MS = 5000;

/**
 * Whether a member counts as hanging: frozen by a signal and silent, or silent for long. A slow
 * member is neither.
 */
export function hangs({
  server,
  silentMs,
}: {
  server: { frozen: boolean } | null;
  silentMs: number | null;
}): boolean {
  return server !== null && silentMs !== null && (server.frozen || silentMs >= HANGS_AFTER_MS);
}

/** Chooses the next step. Its parts are in the order of their urgency. */
export function decideHa(spec: PlacedSpec, ha: PlacedCluster, seen: ClusterSeen): HaStep {
  const primary = seen.instances.find(({ n }) => n === ha.primary);
  if (primary === undefined)
    return on(ha.primary, {
      kind: 'refuse',
      why: `the recorded primary, member ${ha.primary}, does not exist`,
    });
  const others = seen.instances.filter((instance) => instance !== primary);
  const { owned } = seen.primary;
  const first = decideFirst(spec, seen.primary);
  if (first !== null) return on(primary.n, first);
  if (spec.power === 'paused') return decidePaused(primary, others, seen);
  // Members follow each other by sockets that only their user can use: they change it together.
  if (!owned) return { kind: 'own' };
  const pair: Pair = { spec, ha, seen, primary, others };
  return (
    decideReplacedData(pair) ??
    decideUpgraded(pair) ??
    decideFailover(pair) ??
    decidePrimary(pair) ??
    decideOthers(pair) ??
    decidePlanned(pair)
  );
}

/** The primary that the metadata database records, and the other members. */
type Pair = {
  readonly spec: PlacedSpec;
  readonly ha: PlacedCluster;
  readonly seen: ClusterSeen;
  readonly primary: InstanceSeen;
  readonly others: readonly InstanceSeen[];
};

function on(n: number, step: Step): Extract<HaStep, { kind: 'server' }> {
  return { kind: 'server', n, step };
}

/** A requested restore replaces the data of all members: none of them may run. */
function decideReplacedData({ spec, seen, primary, others }: Pair): HaStep | null {
  if (spec.recovery === null || seen.primary.recovered) return null;
  const running = [primary, ...others].find(({ server }) => server !== null);
  if (running === undefined) return on(primary.n, decide(spec, seen.primary));
  return on(running.n, { kind: 'stop', mode: 'immediate', why: 'its data is restored' });
}

/** The steps of an upgrade at the primary stop all members: none of them takes over. */
function decideUpgraded({ spec, seen, primary }: Pair): HaStep | null {
  const step = decideUpgrade(spec, seen.primary);
  return step === null ? null : on(primary.n, step);
}

/** First: no second writer, and another primary if this one is dead. */
function decideFailover({ spec, seen, primary, others }: Pair): HaStep | null {
  const secondWriter = others.find(({ data, server }) => data === 'primary' && server !== null);
  if (secondWriter !== undefined) return { kind: 'fence', n: secondWriter.n };
  // After a start of the control plane, standbys that could take over are connected first.
  const unheard = others.find(
    (instance) =>
      instance.data === 'standby' && instance.server?.phase === 'ready' && !instance.connected,
  );
  if (primary.server === null && unheard !== undefined && unheard.silentMs === null)
    return on(unheard.n, { kind: 'connect' });
  if (seen.successor !== null && 'n' in seen.successor) return { kind: 'failOver' };
  const data = primary.data === 'absent' ? 'lost' : seen.primary.directory;
  const lost = whyLost(spec, { ...seen.primary, directory: data });
  if (lost !== null) return on(primary.n, { kind: 'refuse', why: lost });
  // No standby takes over: the primary is started again where it is.
  if (others.length > 0 && hangs(primary))
    return on(primary.n, { kind: 'stop', mode: 'kill', why: 'it did not answer' });
  return null;
}

/** The primary and its gateway, in the desired network. */
function decidePrimary({ spec, ha, seen, primary }: Pair): HaStep | null {
  const { gateway } = seen;
  if (primary.server?.port === spec.endpoint.port) return { kind: 'moveToGateway' };
  if (
    primary.server?.placed === false &&
    primary.server.phase === 'ready' &&
    primary.data === 'primary'
  )
    return { kind: 'move', why: placeWhy(spec) };
  if (gateway.running && !gateway.placed) return { kind: 'closeGateway', why: placeWhy(spec) };
  const own = decide(spec, seen.primary);
  if (!gateway.running && seen.primary.directory === 'ours' && own.kind !== 'writeFiles')
    // Clients that connect before the primary is ready wait, no matter which of the two is there
    // first.
    return own.kind === 'start'
      ? { kind: 'startWithGateway', n: primary.n }
      : { kind: 'openGateway' };
  if (primary.data === 'standby' && primary.server?.phase === 'ready' && primary.connected)
    return { kind: 'promote' };
  if (own.kind !== 'settled') return on(primary.n, own);
  const port = ha.servers.find(({ n }) => n === primary.n)?.port;
  if (gateway.routesToPort !== port) return { kind: 'routeGateway' };
  return gateway.allowedNetworksCurrent ? null : { kind: 'allowNetworks' };
}

/** The other members: which there are, and that each follows the primary. */
function decideOthers({ spec, ha, seen, primary, others }: Pair): HaStep | null {
  const wanted = ha.servers.map(({ n }) => n);
  const extra = others.find(({ n }) => !wanted.includes(n));
  if (extra !== undefined) return { kind: 'retire', n: extra.n };
  if (!seen.slotsCurrent) return { kind: 'setSlots' };
  const size = primary.server?.size;
  if (size !== undefined && (size === 'larger' || (size !== 'current' && others.length === 0)))
    return { kind: 'restart', why: restartWhy(size) };
  // This wait takes moments; seeding, which comes after it, may take hours.
  if (seen.settling)
    return on(primary.n, {
      kind: 'wait',
      why: 'its replicas are catching up with writes that were acknowledged without them',
      waitMs: 20,
    });
  for (const standby of others) {
    const step = decideStandby(spec, standby);
    if (step !== null) return step;
  }
  const late = others.find(({ streaming }) => !streaming);
  if (late === undefined) return null;
  return on(late.n, {
    kind: 'wait',
    why: `member ${late.n} is catching up with the primary`,
    waitMs: 20,
  });
}

const restartWhy = (size: 'smaller' | 'larger' | 'restart'): string =>
  RESTART_WHY[size === 'restart' ? 'restart' : 'otherSettings'];

/** Planned changes, once all members are well. */
function decidePlanned({ ha, seen, primary, others }: Pair): HaStep {
  // Commits of the drill's writer wait for the standbys and hold locks: first these must be back.
  if (seen.rehearsed && ha.drill === null) return { kind: 'sweepDrill' };
  const successor = choosePlanned(others);
  if (successor !== undefined) {
    const size = primary.server?.size;
    if (size === 'smaller' || size === 'restart')
      return { kind: 'switchOver', to: successor.n, why: restartWhy(size) };
    if (ha.leave === primary.n) return { kind: 'switchOver', to: successor.n, why: 'as requested' };
    if (ha.drill !== null) return { kind: 'drill' };
  }
  return on(primary.n, { kind: 'settled' });
}

/** The primary stops first: a stopping primary sends all its WAL to the standbys. */
function decidePaused(
  primary: InstanceSeen,
  others: readonly InstanceSeen[],
  { gateway, primary: { owned } }: ClusterSeen,
): HaStep {
  const running = [primary, ...others].find(({ server }) => server !== null);
  if (running !== undefined)
    return { kind: 'server', n: running.n, step: { kind: 'stop', mode: 'fast', why: 'paused' } };
  if (gateway.running) return { kind: 'closeGateway', why: 'paused' };
  return { kind: 'server', n: primary.n, step: { kind: owned ? 'settled' : 'own' } };
}

/** The step that a standby needs; null: none. */
export function decideStandby(
  spec: PlacedSpec,
  standby: InstanceSeen,
): Extract<HaStep, { kind: 'seed' | 'server' }> | null {
  const { n, server } = standby;
  const on = (step: Step) => ({ kind: 'server' as const, n, step });
  if (standby.broken !== null) return { kind: 'seed', n, why: standby.broken };
  if (standby.data === 'absent') return { kind: 'seed', n, why: 'new' };
  if (standby.data === 'primary') return { kind: 'seed', n, why: 'it was the primary before' };
  if (server === null)
    return on(
      standby.filesCurrent && standby.certificateCurrent
        ? { kind: 'start' }
        : { kind: 'writeFiles' },
    );
  if (hangs(standby)) return on({ kind: 'stop', mode: 'kill', why: 'it does not answer' });
  if (server.phase !== 'ready')
    return on({ kind: 'wait', why: `member ${n} is starting`, waitMs: 20 });
  if (!server.placed) return on({ kind: 'stop', mode: 'fast', why: placeWhy(spec) });
  if (!standby.connected) return on({ kind: 'connect' });
  if (!standby.certificateCurrent) return on({ kind: 'renewCertificate' });
  if (!standby.filesCurrent) return on({ kind: 'reload' });
  if (server.size !== 'current')
    return on({ kind: 'stop', mode: 'fast', why: restartWhy(server.size) });
  return null;
}
