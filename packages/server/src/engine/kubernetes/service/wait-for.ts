/** The steps that are CloudNativePG's: how long they may take, and why they do not end. */
import type { Seen, Verdict } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { namespaceOf } from '../manifests/names.ts';
import type { Region } from '../region.ts';
import { explainCrash } from './crash.ts';
import type { Step } from './decide.ts';
import { again, OBSTACLE_MS, overdue, STEP_MS } from './verdicts.ts';

/** A copy of a parent's data may take longer, by this for each gigabyte of the volume. */
const COPY_GIGABYTE_MS = 20_000;

/** Waits for what CloudNativePG does, and fails the step once that lasts too long. */
export async function waitFor(
  { kube, waiting }: Pick<Region, 'kube' | 'waiting'>,
  spec: ServiceSpec & { readonly projectId: string },
  { what, why, isObstacle, waitMs }: Extract<Step, { kind: 'wait' }>,
  seen: Seen,
): Promise<Verdict> {
  const limitMs = isObstacle ? OBSTACLE_MS : limitOf(spec);
  const late = (reason: string) =>
    overdue({ waiting }, spec.id, what, limitMs, { seen, why: reason });
  if (late(why) === null) return again(seen, why, waitMs);
  const explained = await explainCrash(kube, namespaceOf(spec.projectId), why);
  return late(explained) ?? again(seen, explained, waitMs);
}

/** How long CloudNativePG may take for a step. */
const limitOf = ({ origin, set, move, provisioned, storageGb }: ServiceSpec): number => {
  const isCopied = origin !== null || set !== null || move?.as === 'copy';
  return STEP_MS + (isCopied && !provisioned ? storageGb * COPY_GIGABYTE_MS : 0);
};
