/** Words of a POSIX shell, for commands that users paste. */

/** A shell word, quoted only if necessary. */
export function quotedWord(text: string): string {
  return /^[\w.@%+=:,/-]+$/.test(text) ? text : quoted(text);
}

/** A quoted word. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
