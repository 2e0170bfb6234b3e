/**
 * Renews the lists of exceptions. Entries for lengths that are no longer needed are removed, the
 * others lowered to what is there. The words are counted again for each file, unless there are more
 * of them.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { LENGTHS, WIDE } from './exceptions.ts';
import { filesOf } from './files.ts';
import { MAX_WIDTH, tooLong, wideDocumentLines, wideLines } from './lengths.ts';
import { WORDS } from './word-exceptions.ts';
import { GLOSSARY, rulesOf, WORDED, wordsIn } from './words.ts';

const LIST = 'tools/check/exceptions.ts';
const WORD_LIST = 'tools/check/word-exceptions.ts';
const read = (path: string): string => readFileSync(path, 'utf8');

const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0);
const sources = filesOf('.', /\.(ts|tsx|js|mjs|css)$/);
const needed = new Map(
  sources.flatMap((path) => tooLong(path, read(path))).map(({ found, lines }) => [found, lines]),
);
const entryOf = (line: string) =>
  Object.entries(LENGTHS).find(([found]) => line.trim().startsWith(`'${found}':`));
const wide = {
  sources: sum(sources.map((path) => wideLines(read(path), MAX_WIDTH).length)),
  documents: sum(filesOf('.', /\.md$/).map((path) => wideDocumentLines(read(path)).length)),
};
const tightened = (line: string): string[] => {
  if (line.startsWith('export const WIDE = ')) {
    const least = [
      `sources: ${Math.min(wide.sources, WIDE.sources)}`,
      `documents: ${Math.min(wide.documents, WIDE.documents)}`,
    ];
    return [`export const WIDE = { ${least.join(', ')} };`];
  }
  const [found, allowed] = entryOf(line) ?? [];
  if (found === undefined || allowed === undefined) return [line];
  const lines = needed.get(found);
  return lines === undefined ? [] : [line.replace(/\d+,$/, `${Math.min(lines, allowed)},`)];
};
writeFileSync(LIST, read(LIST).split('\n').flatMap(tightened).join('\n'));

const rules = rulesOf(read(GLOSSARY));
const words = filesOf('.', WORDED)
  .map((path) => [path, wordsIn(path, read(path), rules).length] as const)
  .filter(([, count]) => count > 0);
const total = sum(words.map(([, count]) => count));
const allowed = sum(Object.values(WORDS));
if (total > allowed) {
  process.stdout.write(
    `${total} words that ${GLOSSARY} replaces; at most ${allowed} may be there\n`,
  );
  process.exitCode = 1;
} else {
  const [head = ''] = read(WORD_LIST).split('= {');
  const entries = words.map(([path, count]) => `  '${path}': ${count},\n`);
  writeFileSync(WORD_LIST, `${head}= {\n${entries.join('')}};\n`);
}
