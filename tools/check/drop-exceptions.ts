/** Removes the exceptions for lengths that are no longer needed from exceptions.ts. */
import { readFileSync, writeFileSync } from 'node:fs';
import { LENGTHS } from './exceptions.ts';
import { filesOf } from './files.ts';
import { tooLong } from './lengths.ts';

const LIST = 'tools/check/exceptions.ts';
const needed = new Set(
  filesOf('.', /\.(ts|tsx|js|mjs|css)$/).flatMap((path) =>
    tooLong(path, readFileSync(path, 'utf8')).map(({ found }) => found),
  ),
);
const unused = Object.keys(LENGTHS).filter((found) => !needed.has(found));
const isUnused = (line: string) => unused.some((found) => line.trim().startsWith(`'${found}':`));
const lines = readFileSync(LIST, 'utf8').split('\n');
writeFileSync(LIST, lines.filter((line) => !isUnused(line)).join('\n'));
process.stdout.write(`${unused.length} removed\n`);
