/** Names in documents of developers: files and identifiers in backticks that are in no source. */

/** The documents that show the place of a change, those of folders too. */
export const LEADING =
  /^(CONTRIBUTING|docs\/(architecture|adding-\S+|replica-set-\S+)|packages\/.+\/README)\.md$/;

const NAMED = /`([^`\n]+)`/g;
/** A placeholder for the number of a file. */
const PLACEHOLDER = 'NNNN';
const FILE = /^[\w./-]*[\w-]\.(ts|tsx|js|mjs|sql|sh|go|yaml)$/;
/** With a capital letter, as words of a shell have none; a call and a member of an object too. */
const IDENTIFIER = /^([a-z][a-z0-9]*)?[A-Z]\w*(?=\(|\.|$)/;
/** A name of code alone: a row may use others for what users know, as a status. */
const FUNCTION = /^[a-z][a-z0-9]*[A-Z]/;

export type Known = Readonly<{
  /** Paths from the root of the clone. */
  files: readonly string[];
  /** Every word of the sources. */
  words: ReadonlySet<string>;
  /** The words of one of the files. */
  wordsOf: (path: string) => ReadonlySet<string>;
}>;

/**
 * @returns the names that nothing has, and those of functions in the row of a table that no file of
 *   the row has; with their 1-based lines
 */
export function missingNames(text: string, { files, words, wordsOf }: Known) {
  const found = (name: string): string[] =>
    FILE.test(name) ? files.filter((path) => path === name || path.endsWith(`/${name}`)) : [];
  const isThere = (name: string): boolean => {
    if (name.includes(PLACEHOLDER)) return true;
    if (FILE.test(name)) return found(name).length > 0;
    const identifier = identifierOf(name);
    return identifier === null || words.has(identifier);
  };
  return text.split('\n').flatMap((line, index) => {
    const names = [...line.matchAll(NAMED)].flatMap(([, name = '']) => name);
    const paths = line.startsWith('|') ? names.flatMap(found) : [];
    const isInRow = (name: string): boolean =>
      paths.length === 0 ||
      !FUNCTION.test(name) ||
      paths.some((path) => wordsOf(path).has(identifierOf(name) ?? name));
    return names
      .filter((name) => !isThere(name) || (!FILE.test(name) && !isInRow(name)))
      .map((name) => ({ line: index + 1, name }));
  });
}

const identifierOf = (name: string): string | null => IDENTIFIER.exec(name)?.[0] ?? null;
