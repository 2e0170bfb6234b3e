/**
 * Runs the checks of words, names, layers, lengths and commits:
 * `tsx tools/check/walls.ts words names layers lengths commits`.
 */
import { readFileSync } from 'node:fs';
import { checkCommits } from './commits.ts';
import { IMPORTS, LENGTHS } from './exceptions.ts';
import { filesOf } from './files.ts';
import { findViolations, layerTable } from './layers.ts';
import { MAX_DOCUMENT_WIDTH, MAX_WIDTH, tooLong, wideDocumentLines, wideLines } from './lengths.ts';
import { LEADING, missingNames } from './names.ts';
import { exceedingCounts, refusedImports } from './refusals.ts';
import { GLOSSARY, rulesOf, WORDED, wordsIn } from './words.ts';

const ARCHITECTURE = 'docs/architecture.md';
const SOURCE = /\.(ts|tsx|js|mjs|css|go)$/;
const read = (path: string): string => readFileSync(path, 'utf8');

const CHECKS: Readonly<Record<string, () => string[]>> = {
  words: () => {
    const rules = rulesOf(read(GLOSSARY));
    return filesOf('.', WORDED).flatMap((path) =>
      wordsIn(path, read(path), rules).map(
        ({ line, word, instead }) => `${path}:${line}: "${word}": use ${instead}`,
      ),
    );
  },
  names: () => {
    const sources = filesOf('.', SOURCE);
    const wordsOf = memoized((path) => new Set(read(path).match(/\w+/g)));
    const words = new Set(sources.flatMap((path) => [...wordsOf(path)]));
    const known = { files: filesOf('.', /./), words, wordsOf };
    return filesOf('.', LEADING).flatMap((path) =>
      missingNames(read(path), known).map(
        ({ line, name }) => `${path}:${line}: nothing, or no file of its row, has \`${name}\``,
      ),
    );
  },
  layers: () => [
    ...refusedImports(findViolations('.'), IMPORTS),
    ...(read(ARCHITECTURE).includes(layerTable())
      ? []
      : [`${ARCHITECTURE}: its table of layers must be this one:\n${layerTable()}`]),
  ],
  lengths: () => {
    const sources = filesOf('.', SOURCE);
    const long = sources.flatMap((path) => tooLong(path, read(path)));
    const lengths = new Map(long.map(({ found, lines }) => [found, lines]));
    return [
      ...exceedingCounts(lengths, LENGTHS, 'lines: split it by topic'),
      ...sources.flatMap((path) => wide(path, wideLines(read(path), MAX_WIDTH), MAX_WIDTH)),
      ...filesOf('.', /\.md$/).flatMap((path) =>
        wide(path, wideDocumentLines(read(path)), MAX_DOCUMENT_WIDTH),
      ),
    ];
  },
  commits: () => {
    const { base, count, faults } = checkCommits('.');
    if (base === null) process.stdout.write('commits: no main branch to compare with\n');
    else if (count === 0) process.stdout.write(`commits: none after ${base}, nothing to check\n`);
    return faults;
  },
};

/** Asks for each path once. */
function memoized<T>(read: (path: string) => T): (path: string) => T {
  const known = new Map<string, T>();
  return (path) => {
    const value = known.get(path) ?? read(path);
    known.set(path, value);
    return value;
  };
}

const wide = (path: string, lines: readonly number[], width: number): string[] =>
  lines.map((line) => `${path}:${line}: more than ${width} characters: break the line`);

for (const name of process.argv.slice(2)) {
  const check = CHECKS[name];
  if (check === undefined) {
    throw new Error(`${name}: no such check; there are: ${Object.keys(CHECKS).join(', ')}`);
  }
  for (const line of check()) {
    process.stdout.write(`${line}\n`);
    process.exitCode = 1;
  }
}
