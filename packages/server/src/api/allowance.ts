/** How much may be done under a name within a time: a token bucket for each name, in memory. */

/**
 * Names that have used part of their allowance; beyond this, those that have it back are forgotten.
 */
const SWEEP_AT = 10_000;

export type Allowance = {
  /** How long until something may be done; 0: now. */
  waitMs(name: string): number;
  /** Notes that it was done. */
  spend(name: string): void;
};

/** @param most that may be done within `withinMs`, at once or spread over it */
export function createAllowance(
  most: number,
  withinMs: number,
  now: () => number = Date.now,
): Allowance {
  const used = new Map<string, { amount: number; atMs: number }>();

  const usedNow = (name: string): number => {
    const before = used.get(name);
    // A clock that was set back gives nothing back.
    return before === undefined
      ? 0
      : Math.max(0, before.amount - (Math.max(0, now() - before.atMs) / withinMs) * most);
  };

  return {
    waitMs: (name) => {
      const over = usedNow(name) - (most - 1);
      return over <= 0 ? 0 : Math.max(1, Math.ceil((over / most) * withinMs));
    },
    spend: (name) => {
      if (used.size >= SWEEP_AT)
        for (const known of used.keys()) if (usedNow(known) === 0) used.delete(known);
      used.set(name, { amount: usedNow(name) + 1, atMs: now() });
    },
  };
}
