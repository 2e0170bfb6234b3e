/** Prints the lengths of files and functions: `tsx tools/check/numbers.ts [DIRECTORY]`. */
import { readFileSync } from 'node:fs';
import { filesOf } from './files.ts';
import {
  functionsIn,
  MAX_FILE_LINES,
  MAX_FUNCTION_LINES,
  MAX_WIDTH,
  wideLines,
} from './lengths.ts';

const root = process.argv[2] ?? '.';
const sources = filesOf(root, /\.(ts|tsx|js|mjs)$/).map((path) => ({
  path,
  source: readFileSync(`${root}/${path}`, 'utf8'),
}));
print(
  'files',
  sources.map(({ source }) => source.split('\n').length - 1),
  MAX_FILE_LINES,
);
print(
  'functions',
  sources.flatMap(({ path, source }) => functionsIn(path, source).map(({ lines }) => lines)),
  MAX_FUNCTION_LINES,
);
const wide = sources.reduce((sum, { source }) => sum + wideLines(source, MAX_WIDTH).length, 0);
process.stdout.write(`lines wider than ${MAX_WIDTH}: ${wide}\n`);

function print(what: string, numbers: number[], limit: number): void {
  const sorted = numbers.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
  const over = sorted.filter((lines) => lines > limit).length;
  process.stdout.write(
    `${what}: ${sorted.length}, median ${at(0.5)}, 90 % ${at(0.9)}, max ${at(1)}, ` +
      `over ${limit}: ${over}\n`,
  );
}
