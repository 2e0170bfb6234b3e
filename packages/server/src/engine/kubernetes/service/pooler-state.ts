/** The state of a pooler in its cluster, as far as decisions need it. All of it is input. */
import { Type, type Static } from 'typebox';
import { POOLER_HASH } from '../manifests/pooler.ts';
import { METADATA } from './metadata.ts';
import type { ServiceSpec } from '../../spec.ts';
import { STEPS } from './steps.ts';

export const DEPLOYMENT_OBJECT = Type.Object({
  metadata: METADATA,
  spec: Type.Object({ replicas: Type.Number() }),
  status: Type.Optional(
    Type.Object({
      observedGeneration: Type.Optional(Type.Number()),
      replicas: Type.Optional(Type.Number()),
      updatedReplicas: Type.Optional(Type.Number()),
      readyReplicas: Type.Optional(Type.Number()),
    }),
  ),
});

export type PoolerState = Readonly<{
  /** The hash of the manifests that it was written by; null: somebody has removed it. */
  hash: string | null;
  /** Whether it must run. */
  isWanted: boolean;
  /** Whether it runs as it was written, and nothing of before is left. */
  isReady: boolean;
}>;

export function poolerState({
  metadata,
  spec,
  status,
}: Static<typeof DEPLOYMENT_OBJECT>): PoolerState {
  const isSeen = (status?.observedGeneration ?? 0) >= (metadata.generation ?? 0);
  const counts = [status?.replicas, status?.updatedReplicas, status?.readyReplicas];
  return {
    hash: metadata.annotations?.[POOLER_HASH] ?? null,
    isWanted: spec.replicas > 0,
    isReady: isSeen && counts.every((count) => count === 1),
  };
}

// The next step of a pooler. Pure.

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
