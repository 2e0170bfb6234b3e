/** What a thrown value says: a program may throw anything, not only an `Error`. */

/** The message of an error, or the text of another value that was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** An error for a caller that takes nothing else. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
