/** The state of a pooler in its cluster, as far as decisions need it. All of it is input. */
import { Type, type Static } from 'typebox';
import { POOLER_HASH } from './manifest.ts';
import { METADATA } from '../api/kinds.ts';

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
