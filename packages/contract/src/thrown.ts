/** The text of a thrown value: a program may throw anything, not only an `Error`. */

/**
 * The message of an error, or the text of another value that was thrown. It is never empty for an
 * error: Node gives none when a name has several addresses and none of them answers.
 */
export function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  if (thrown.message !== '') return thrown.message;
  const causes = thrown instanceof AggregateError ? thrown.errors.map(messageOf) : [];
  return causes.length === 0 ? thrown.name : [...new Set(causes)].join('; ');
}

/** An error for a caller that takes nothing else. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
