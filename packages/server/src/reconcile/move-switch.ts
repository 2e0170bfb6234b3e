/** The last steps before a service is stopped, in the order that loses nothing. */
import type { Move } from '../domain/service/row.ts';
import { isClose } from '../domain/service/move-progress.ts';
import type {
  CopyProgress,
  MovedData,
  MovePlace,
  MoveSource,
  MoveTarget,
  MoveTargetRegion,
} from '../engine/moves.ts';

/** At once: each holds a place of the reconciler, for minutes at most. */
const EXAMINED_AT_ONCE = 2;
/** A tenant can have its copy fall behind during each checkpoint. */
const EXAMINED_EVERY_MS = 60_000;

/** Says which moves may be examined: few at a time, and each once in a while. */
export function createTurns() {
  const begun = new Map<string, number>();
  const running = new Set<string>();
  return {
    /** @returns ends the examination; null: it has to wait */
    enter: ({ id }: Pick<Move, 'id'>, nowMs: number): (() => void) | null => {
      for (const [one, atMs] of begun) if (nowMs - atMs >= EXAMINED_EVERY_MS) begun.delete(one);
      if (begun.has(id) || running.size >= EXAMINED_AT_ONCE) return null;
      begun.set(id, nowMs);
      running.add(id);
      return () => void running.delete(id);
    },
  };
}

/** The state right before the switch. @param found null: the copy is not close */
type BeforeSwitch = Readonly<{
  progress: CopyProgress;
  found: Readonly<{ data: MovedData; target: MoveTarget }> | null;
}>;

/** `place`: of the target. */
type BothParts = Readonly<{ from: MoveSource; to: MoveTargetRegion; place: MovePlace }>;

/**
 * Examines a service right before it is stopped. A user may change everything until then, so what
 * takes time goes first.
 */
export async function examineBeforeSwitch(
  { from, to, place }: BothParts,
  id: string,
): Promise<BeforeSwitch> {
  await from.checkpoint(id);
  const progress = await from.progress(id);
  if (!isClose(progress)) return { progress, found: null };
  const target = { ...(await to.describe()), place, versions: await to.versions(id) };
  await from.withhold(id);
  return { progress, found: { target, data: await from.read(id) } };
}
