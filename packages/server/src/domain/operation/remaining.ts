/** How long an operation still takes. */

/**
 * @param past durations of earlier operations of the kind
 * @param elapsed since it was accepted; all in seconds
 * @returns null: unknown, since it is the first of its kind or takes longer than any before
 */
export function remainingSeconds(
  past: { median: number; longest: number } | null,
  elapsed: number,
): number | null {
  if (past === null || elapsed > past.longest) return null;
  const left = (elapsed <= past.median ? past.median : past.longest) - elapsed;
  return Math.round(left * 10) / 10;
}
