/** The next step of a pooler. Pure. */
import type { ServiceSpec } from '../../spec.ts';
import type { PoolerState } from './state.ts';
import { STEPS } from '../cluster/steps.ts';

export type PoolerStep =
  /** Writes its objects as desired, and waits until it lets tsdbadmin log in. */
  Readonly<{ kind: 'startPooler'; name: string }> | Readonly<{ kind: 'stopPooler'; name: string }>;

type Wanted = Pick<ServiceSpec, 'pooler' | 'power'>;

/** Whether a pooler must run. */
export const mustRun = ({ pooler, power }: Wanted): boolean =>
  pooler !== null && power === 'running';

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
  if (!mustRun(spec)) return null;
  if (isCurrent && seen?.isReady === true && starting === null) return null;
  const name = seen?.isWanted === true && !isCurrent ? STEPS.reloadPooler : STEPS.startPooler;
  return { kind: 'startPooler', name: starting ?? name };
}
