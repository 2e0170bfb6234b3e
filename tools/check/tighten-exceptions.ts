/** Removes the exceptions for lengths that are no longer needed, and lowers the others to what is there. */
import { readFileSync, writeFileSync } from 'node:fs';
import { LENGTHS } from './exceptions.ts';
import { filesOf } from './files.ts';
import { tooLong } from './lengths.ts';

const LIST = 'tools/check/exceptions.ts';
const needed = new Map(
  filesOf('.', /\.(ts|tsx|js|mjs|css)$/)
    .flatMap((path) => tooLong(path, readFileSync(path, 'utf8')))
    .map(({ found, lines }) => [found, lines]),
);
const entryOf = (line: string) =>
  Object.entries(LENGTHS).find(([found]) => line.trim().startsWith(`'${found}':`));
const tightened = (line: string): string[] => {
  const [found, allowed] = entryOf(line) ?? [];
  if (found === undefined || allowed === undefined) return [line];
  const lines = needed.get(found);
  return lines === undefined ? [] : [line.replace(/\d+,$/, `${Math.min(lines, allowed)},`)];
};
writeFileSync(LIST, readFileSync(LIST, 'utf8').split('\n').flatMap(tightened).join('\n'));
