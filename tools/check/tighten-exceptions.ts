/**
 * Renews the list of exceptions. Entries for lengths that are no longer needed are removed, the
 * others lowered to the lengths of now.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { LENGTHS } from './exceptions.ts';
import { filesOf } from './files.ts';
import { tooLong } from './lengths.ts';

const LIST = 'tools/check/exceptions.ts';
const read = (path: string): string => readFileSync(path, 'utf8');

const sources = filesOf('.', /\.(ts|tsx|js|mjs|css|go)$/);
const needed = new Map(
  sources.flatMap((path) => tooLong(path, read(path))).map(({ found, lines }) => [found, lines]),
);
const entryOf = (line: string) =>
  Object.entries(LENGTHS).find(([found]) => line.trim().startsWith(`'${found}':`));
const tightened = (line: string): string[] => {
  const [found, allowed] = entryOf(line) ?? [];
  if (found === undefined || allowed === undefined) return [line];
  const lines = needed.get(found);
  return lines === undefined ? [] : [line.replace(/\d+,$/, `${Math.min(lines, allowed)},`)];
};
writeFileSync(LIST, read(LIST).split('\n').flatMap(tightened).join('\n'));
