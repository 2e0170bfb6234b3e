/**
 * Reports short sources that one file of their folder imports and nothing else, and that have no
 * test of their own: each is an idea that a sentence can name, or a part of that file.
 * `npx tsx tools/check/sole-importers.ts`
 */
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { filesOf } from './files.ts';
import { findImports, type Import } from './layers.ts';

/** A longer one is easier to read on its own. */
const MAX_LINES = 59;
const SOURCE = /^packages\/[^/]+\/src\/(?!.*\.(test|testing)\.tsx?$).*\.tsx?$/;

export type Sole = { readonly path: string; readonly lines: number; readonly importer: string };

/**
 * @param files paths from the root of the clone, those of tests too
 * @param imports those of tests do not count; a file that is loaded late has to be one of its own
 * @param linesOf the length of a file
 * @returns shortest first
 */
export function soleImports(
  files: readonly string[],
  imports: readonly Import[],
  linesOf: (path: string) => number,
): Sole[] {
  const known = new Set(files);
  const importsOf = (path: string): Import[] =>
    imports.filter(({ from, to }) => to === path && SOURCE.test(from));
  return files
    .filter((path) => SOURCE.test(path) && !known.has(path.replace(/\.tsx?$/, '.test.ts')))
    .flatMap((path) => {
      const found = importsOf(path);
      const [importer, ...others] = new Set(found.map(({ from }) => from));
      if (importer === undefined || others.length > 0 || found.some(({ isLate }) => isLate))
        return [];
      return dirname(importer) === dirname(path) ? [{ path, lines: linesOf(path), importer }] : [];
    })
    .filter(({ lines }) => lines <= MAX_LINES)
    .toSorted((a, b) => a.lines - b.lines);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const linesOf = (path: string): number => readFileSync(path, 'utf8').split('\n').length - 1;
  const found = soleImports(filesOf('.', /^packages\/.*\.tsx?$/), findImports('.'), linesOf);
  for (const { path, lines, importer } of found)
    process.stdout.write(`${path} (${lines} lines): only ${importer} imports it\n`);
  process.stdout.write(`${found.length} found\n`);
}
