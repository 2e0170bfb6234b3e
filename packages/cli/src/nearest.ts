/** The word that a mistyped one may mean. */

/** A short word may have one slip of the keyboard, a longer one two. */
const allowedSlips = (word: string): number => (word.length < 4 ? 1 : 2);

/** The nearest of these names; null: none is near. */
export function nearestOf(word: string, names: readonly string[]): string | null {
  const wanted = word.toLowerCase();
  const near = names
    .map((name) => ({ name, slips: slipsBetween(wanted, name.toLowerCase()) }))
    .filter(({ slips }) => slips <= allowedSlips(word))
    .toSorted((one, other) => one.slips - other.slips);
  return near[0]?.name ?? null;
}

/**
 * How many letters were left out, added, exchanged, or swapped with the next: the distance of
 * Damerau and Levenshtein, in its restricted form.
 */
export function slipsBetween(one: string, other: string): number {
  let before: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let row = 1; row <= one.length; row++) {
    const next = [row];
    for (let column = 1; column <= other.length; column++) {
      const isSame = one[row - 1] === other[column - 1];
      const isSwapped =
        row > 1 &&
        column > 1 &&
        one[row - 1] === other[column - 2] &&
        one[row - 2] === other[column - 1];
      next.push(
        Math.min(
          (last[column] ?? 0) + 1,
          (next[column - 1] ?? 0) + 1,
          (last[column - 1] ?? 0) + (isSame ? 0 : 1),
          isSwapped ? (before[column - 2] ?? 0) + 1 : Infinity,
        ),
      );
    }
    before = last;
    last = next;
  }
  return last[other.length] ?? 0;
}
