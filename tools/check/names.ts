/** Names in documents of developers: files and identifiers in backticks that are in no source. */

/** The documents that lead to the place of a change; what they name has to be there. */
export const LEADING =
  /^(CONTRIBUTING|docs\/(architecture|adding-[^/]+|replica-set-reads-fail))\.md$/;

const NAMED = /`([^`\n]+)`/g;
/** A placeholder for the number of a file. */
const PLACEHOLDER = 'NNNN';
const FILE = /^[\w./-]*[\w-]\.(ts|tsx|js|mjs|sql|sh|go|yaml)$/;
/** In camel case, as nothing but source has them; a call and a member of an object too. */
const IDENTIFIER = /^[a-z]+[a-z0-9]*[A-Z]\w*(?=\(|\.|$)/;

export type Known = Readonly<{
  /** Paths from the root of the clone. */
  files: readonly string[];
  /** Every word of the sources. */
  words: ReadonlySet<string>;
}>;

/** @returns the names that nothing has, with their 1-based lines */
export function missingNames(text: string, { files, words }: Known) {
  const isThere = (name: string): boolean => {
    if (name.includes(PLACEHOLDER)) return true;
    if (FILE.test(name)) return files.some((path) => path === name || path.endsWith(`/${name}`));
    const [identifier] = IDENTIFIER.exec(name) ?? [];
    return identifier === undefined || words.has(identifier);
  };
  return text
    .split('\n')
    .flatMap((line, index) =>
      [...line.matchAll(NAMED)].flatMap(([, name = '']) =>
        isThere(name) ? [] : [{ line: index + 1, name }],
      ),
    );
}
