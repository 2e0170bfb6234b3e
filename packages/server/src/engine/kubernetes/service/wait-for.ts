/** The steps that are CloudNativePG's: how long they may take, and why they do not end. */
import type { Seen, Verdict } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { namespaceOf } from '../manifests/names.ts';
import type { Region } from '../region.ts';
import { explainCrash } from './crash.ts';
import type { Step } from './decide.ts';
import { OBSTACLE_MS, STEP_MS, waitForCluster } from './verdicts.ts';

/** A copy of a parent's data may take longer, by this for each gigabyte of the volume. */
const COPY_GIGABYTE_MS = 20_000;

/** Waits for what CloudNativePG does, and fails the step once that lasts too long. */
export async function waitFor(
  region: Pick<Region, 'kube' | 'waiting' | 'answers'>,
  spec: ServiceSpec & { readonly projectId: string },
  { what, why, isObstacle, waitMs }: Extract<Step, { kind: 'wait' }>,
  seen: Seen,
): Promise<Verdict> {
  const limitMs = isObstacle ? OBSTACLE_MS : limitOf(spec);
  const verdict = (reason: string): Verdict =>
    waitForCluster(region, spec.id, what, limitMs, { seen, why: reason, waitMs });
  const first = verdict(why);
  if (first.outcome !== 'failed') return first;
  return verdict(await explainCrash(region.kube, namespaceOf(spec.projectId), why));
}

/** How long CloudNativePG may take for a step. */
const limitOf = (spec: ServiceSpec): number => {
  const { origin, set, move, recovery, provisioned, storageGb } = spec;
  const isCopied = origin !== null || set !== null || move?.as === 'copy';
  const isLong = recovery !== null || (isCopied && !provisioned);
  return STEP_MS + (isLong ? storageGb * COPY_GIGABYTE_MS : 0);
};
