/** The verdict of a decision that nothing can be done yet. */

/** `what`: the step that has not ended; `isObstacle`: it cannot end by itself. */
export type Wait = Readonly<{
  kind: 'wait';
  what: string;
  why: string;
  isObstacle: boolean;
  waitMs: number;
}>;

/** How soon a Cluster that changes is looked at again, beside the events of watches. */
const SOON_MS = 200;

export const wait = (what: string, why: string, isObstacle = false, waitMs = SOON_MS): Wait => ({
  kind: 'wait',
  what,
  why,
  isObstacle,
  waitMs,
});
