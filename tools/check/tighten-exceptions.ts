/**
 * Renews the list of exceptions. Entries for lengths that are no longer needed are removed, the
 * others lowered to the lengths of now.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { LENGTHS, WIDE } from './exceptions.ts';
import { filesOf } from './files.ts';
import { MAX_WIDTH, tooLong, wideDocumentLines, wideLines } from './lengths.ts';

const LIST = 'tools/check/exceptions.ts';
const read = (path: string): string => readFileSync(path, 'utf8');

const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0);
const sources = filesOf('.', /\.(ts|tsx|js|mjs|css|go)$/);
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
