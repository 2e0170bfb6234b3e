/** How often quiet logs are read: to ask hundreds of them each minute costs processor time. */

/** A quiet log is read once in so many rounds. */
const MOST_ROUNDS = 8;

/** The last decision about a log: `left` rounds out of `every` go by until it is read again. */
export type Rest = { readonly every: number; left: number };

/** Whether a log is read in this round, which is one less to go by. */
export function isDue(rest: Rest | undefined): boolean {
  if (rest === undefined || rest.left === 0) return true;
  rest.left -= 1;
  return false;
}

/**
 * The rest of a log that was read: none after new lines, else about twice as long as before.
 *
 * @param random from 0 to 1; spreads logs over the rounds
 */
export function restAfter(hasMore: boolean, before: Rest | undefined, random: number): Rest {
  const every = hasMore ? 1 : Math.min(2 * (before?.every ?? 1), MOST_ROUNDS);
  return { every, left: Math.floor(every * (0.5 + random / 2)) };
}
