/** The next step of a pooler. Pure. */
import type { ServiceSpec } from '../../spec.ts';
import { LIMITED_POOLER } from '../capabilities.ts';
import type { PoolerState } from './pooler-state.ts';
import { STEPS } from './steps.ts';

export type PoolerStep =
  /** Writes its objects as desired, and waits until it lets tsdbadmin log in. */
  | Readonly<{ kind: 'startPooler'; name: string }>
  | Readonly<{ kind: 'stopPooler'; name: string }>
  | Readonly<{ kind: 'refuse'; why: string }>;

type Wanted = Pick<ServiceSpec, 'pooler' | 'power' | 'allowedNetworks'>;

/**
 * Whether a pooler must run. PostgreSQL sees the address of the pooler in place of those of its
 * clients, so a service whose networks are limited has none.
 */
export const mustRun = ({ pooler, power, allowedNetworks }: Wanted): boolean =>
  pooler !== null && power === 'running' && allowedNetworks === null;

/** The state of a pooler beside its objects. */
export type KnownPooler = Readonly<{
  /** Whether its objects are as desired. */
  isCurrent: boolean;
  /** The step that has not ended; null: none. */
  starting: string | null;
}>;

/** A pooler that runs and must not; it is stopped before its server. */
export function decidePoolerStop(spec: Wanted, seen: PoolerState | null): PoolerStep | null {
  if (seen?.isWanted !== true || mustRun(spec)) return null;
  return { kind: 'stopPooler', name: STEPS.stopPooler };
}

/** The step for a desired pooler whose server is ready. */
export function decidePooler(
  spec: Wanted,
  seen: PoolerState | null,
  { isCurrent, starting }: KnownPooler,
): PoolerStep | null {
  if (spec.pooler === null) return null;
  if (!mustRun(spec)) return { kind: 'refuse', why: LIMITED_POOLER };
  if (isCurrent && seen?.isReady === true && starting === null) return null;
  const name = seen?.isWanted === true && !isCurrent ? STEPS.reloadPooler : STEPS.startPooler;
  return { kind: 'startPooler', name: starting ?? name };
}
