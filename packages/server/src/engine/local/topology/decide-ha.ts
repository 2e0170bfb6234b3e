/**
 * What to do next for a service with several members, as a pure function of what is wanted and what was observed. members.ts does it.
 *
 * The first rule: only the primary that the metadata database records accepts writes, and before it does, no other server of the service
 * that could take any is left running.
 */
import { DRILL_STEP, type HighAvailability, type ServiceSpec } from '../../engine.ts';
import { decide, placeWhy, STEP_NAME, type Observation, type Step } from './decide.ts';
import { choosePlanned, type Successor } from './failover.ts';
import type { GatewaySeen } from '../proxy/gateway.ts';
import type { Phase } from '../postgres/server.ts';

export type MemberSeen = {
  n: number;
  /** What a server that starts on its data would be: one that follows, or one that accepts writes. */
  data: 'absent' | 'standby' | 'primary';
  /** `size`: against the one that is wanted; `port`: the one it listens on; `placed`: whether in the desired network. */
  server: {
    phase: Phase;
    size: 'current' | 'smaller' | 'larger';
    port: number | null;
    frozen: boolean;
    placed: boolean;
  } | null;
  connected: boolean;
  silentMs: number | null;
  filesCurrent: boolean;
  certificateCurrent: boolean;
  /** Whether it receives what the primary writes as it is written; of the primary itself: false. */
  streaming: boolean;
  /** Why it has to be recreated; null: it need not. */
  broken: string | null;
};

export type MembersSeen = {
  /** The primary as the rules for one server see it. */
  primary: Observation;
  /** Every member there is or must be. */
  members: readonly MemberSeen[];
  gateway: GatewaySeen;
  /** Slots on the primary that are missing, or of no member. */
  slotsCurrent: boolean;
  /** Whether those whom the primary waits for are on their way to have all that it acknowledged before: then one of them can take over. */
  settling: boolean;
  /** Whether a drill that was interrupted has left something. */
  rehearsed: boolean;
  /** Looked for while the primary is dead or hangs: who can take over, or why nobody can. */
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
  | { kind: 'lead' }
  | { kind: 'closeGateway'; why: string }
  | { kind: 'seed'; n: number; why: string }
  | { kind: 'setSlots' }
  | { kind: 'retire'; n: number }
  | { kind: 'sweepDrill' }
  | { kind: 'drill' };

/** The name of a step as a user reads it; null: it only looks. */
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
    case 'lead':
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
      return 'remove what a drill left';
    case 'drill':
      return DRILL_STEP;
  }
}

/** A member of a service with replicas that has not answered for this long is ended; one that was stopped by a signal sooner. */
export const HANGS_AFTER_MS = 5000;

/** Whether a member is taken to hang: stopped by a signal and silent, or silent for long. Short of CPU is neither. */
export function hangs({
  server,
  silentMs,
}: {
  server: { frozen: boolean } | null;
  silentMs: number | null;
}): boolean {
  return server !== null && silentMs !== null && (server.frozen || silentMs >= HANGS_AFTER_MS);
}

export function decideHa(spec: ServiceSpec, ha: HighAvailability, seen: MembersSeen): HaStep {
  const primary = seen.members.find(({ n }) => n === ha.primary);
  const on = (n: number, step: Step): HaStep => ({ kind: 'server', n, step });
  if (primary === undefined)
    return on(ha.primary, {
      kind: 'refuse',
      why: `member ${ha.primary}, its primary, is none of its members`,
    });
  const others = seen.members.filter((member) => member !== primary);
  const first = seen.primary;
  if (first.directory === 'foreign') return on(primary.n, decide(spec, first));
  if (
    first.pooler !== null &&
    (spec.pooler === null || spec.power === 'paused' || !first.pooler.placed)
  )
    return on(primary.n, decide(spec, first));
  if (spec.power === 'paused') return decidePaused(primary, others, seen);
  // Its members follow each other by sockets that are their user's alone: they change it together.
  if (!first.owned) return { kind: 'own' };

  const secondWriter = others.find(({ data, server }) => data === 'primary' && server !== null);
  if (secondWriter !== undefined) return { kind: 'fence', n: secondWriter.n };
  if (first.provisioned && primary.data === 'absent')
    return on(primary.n, {
      kind: 'refuse',
      why: `the data of member ${primary.n}, its primary, is gone; bring it back`,
    });
  // Who could take over has to be heard first: after a start of the control plane.
  const unheard = others.find(
    (member) => member.data === 'standby' && member.server?.phase === 'ready' && !member.connected,
  );
  if (primary.server === null && unheard !== undefined && unheard.silentMs === null)
    return on(unheard.n, { kind: 'connect' });
  if (seen.successor !== null && 'n' in seen.successor) return { kind: 'failOver' };
  // Nobody takes over: it is started again where it is.
  if (others.length > 0 && hangs(primary))
    return on(primary.n, { kind: 'stop', mode: 'kill', why: 'it did not answer' });
  if (primary.server?.port === spec.endpoint.port) return { kind: 'moveToGateway' };
  if (
    primary.server?.placed === false &&
    primary.server.phase === 'ready' &&
    primary.data === 'primary'
  )
    return { kind: 'move', why: placeWhy(spec) };
  if (seen.gateway.running && !seen.gateway.placed)
    return { kind: 'closeGateway', why: placeWhy(spec) };
  const own = decide(spec, first);
  if (!seen.gateway.running && first.directory === 'ours' && own.kind !== 'writeFiles')
    // Who connects before the primary is ready waits, whichever of them is there first.
    return own.kind === 'start'
      ? { kind: 'startWithGateway', n: primary.n }
      : { kind: 'openGateway' };
  if (primary.data === 'standby' && primary.server?.phase === 'ready' && primary.connected)
    return { kind: 'promote' };
  if (own.kind !== 'settled') return on(primary.n, own);
  const port = ha.members.find(({ n }) => n === primary.n)?.port;
  if (seen.gateway.routesToPort !== port) return { kind: 'lead' };
  if (!seen.gateway.allowedNetworksCurrent) return { kind: 'allowNetworks' };

  const wanted = ha.members.map(({ n }) => n);
  const extra = others.find(({ n }) => !wanted.includes(n));
  if (extra !== undefined) return { kind: 'retire', n: extra.n };
  if (!seen.slotsCurrent) return { kind: 'setSlots' };
  if (
    primary.server?.size === 'larger' ||
    (primary.server?.size === 'smaller' && others.length === 0)
  )
    return { kind: 'restart', why: 'for its new size' };

  // Moments, before what may take hours.
  if (seen.settling)
    return on(primary.n, {
      kind: 'wait',
      why: 'its replicas are catching up with what was acknowledged without them',
      waitMs: 20,
    });
  for (const member of others) {
    const step = decideStandby(spec, member);
    if (step !== null) return step;
  }
  const late = others.find(({ streaming }) => !streaming);
  if (late !== undefined)
    return on(late.n, {
      kind: 'wait',
      why: `member ${late.n} is catching up with the primary`,
      waitMs: 20,
    });
  // Commits of the drill's writer wait for the standbys, and hold locks meanwhile: not before these are back.
  if (seen.rehearsed && ha.drill === null) return { kind: 'sweepDrill' };
  const successor = choosePlanned(others);
  if (successor !== undefined) {
    if (primary.server?.size === 'smaller')
      return { kind: 'switchOver', to: successor.n, why: 'for its new size' };
    if (ha.leave === primary.n)
      return { kind: 'switchOver', to: successor.n, why: 'as was asked for' };
    if (ha.drill !== null) return { kind: 'drill' };
  }
  return on(primary.n, { kind: 'settled' });
}

/** The primary goes first: as it ends it sends all it has to the others. */
function decidePaused(
  primary: MemberSeen,
  others: readonly MemberSeen[],
  { gateway, primary: { owned } }: MembersSeen,
): HaStep {
  const running = [primary, ...others].find(({ server }) => server !== null);
  if (running !== undefined)
    return { kind: 'server', n: running.n, step: { kind: 'stop', mode: 'fast', why: 'paused' } };
  if (gateway.running) return { kind: 'closeGateway', why: 'paused' };
  return { kind: 'server', n: primary.n, step: { kind: owned ? 'settled' : 'own' } };
}

/** What one that follows needs; null: nothing. */
export function decideStandby(
  spec: ServiceSpec,
  member: MemberSeen,
): Extract<HaStep, { kind: 'seed' | 'server' }> | null {
  const { n, server } = member;
  const on = (step: Step) => ({ kind: 'server' as const, n, step });
  if (member.broken !== null) return { kind: 'seed', n, why: member.broken };
  if (member.data === 'absent') return { kind: 'seed', n, why: 'new' };
  if (member.data === 'primary') return { kind: 'seed', n, why: 'it was the primary before' };
  if (server === null)
    return on(
      member.filesCurrent && member.certificateCurrent ? { kind: 'start' } : { kind: 'writeFiles' },
    );
  if (hangs(member)) return on({ kind: 'stop', mode: 'kill', why: 'it does not answer' });
  if (server.phase !== 'ready')
    return on({ kind: 'wait', why: `member ${n} is starting`, waitMs: 20 });
  if (!server.placed) return on({ kind: 'stop', mode: 'fast', why: placeWhy(spec) });
  if (!member.connected) return on({ kind: 'connect' });
  if (!member.certificateCurrent) return on({ kind: 'renewCertificate' });
  if (!member.filesCurrent) return on({ kind: 'reload' });
  if (server.size !== 'current') return on({ kind: 'stop', mode: 'fast', why: 'for its new size' });
  return null;
}
