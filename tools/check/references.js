// Finds references to pages, sections and traps of docs/ that do not exist.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const SOURCE = /\.(ts|tsx|js|mjs|sql|md|sh)$/;
const PAGE = new RegExp(
  String.raw`(?<![\w./-])((?:[\w.-]+/)*[\w-]+\.md)\b(?!\])` +
    String.raw`(?:, (?:(section|trap|recipe) )?(R?\d+(?:\.\d+)?))?`,
  'g',
);
/** Pages that tests write or that only an example names. */
const EXEMPT = /^(packages\/[^/]+\/test\/|openapi\/)/;

const TRAPS = 'docs/reliability.md';

/** @param {string} page @param {string | undefined} number */
function hasNumber(page, number) {
  if (number === undefined) return true;
  const text = readFileSync(page, 'utf8');
  const [section = '', item] = number.split('.');
  if (section.startsWith('R')) return text.includes(`**Recipe ${section}.**`);
  const from = page === TRAPS ? 0 : text.search(new RegExp(`^## ${section} `, 'm'));
  if (from === -1) return false;
  const wanted = page === TRAPS ? section : item;
  return wanted === undefined || new RegExp(`^${wanted}\\. `, 'm').test(text.slice(from));
}

let missing = 0;
const files = execFileSync('git', ['ls-files'], { encoding: 'utf8' }).split('\n');
for (const path of files.filter((file) => SOURCE.test(file) && !EXEMPT.test(file))) {
  for (const [index, line] of readFileSync(path, 'utf8').split('\n').entries()) {
    for (const [text, page = '', , number] of line.matchAll(PAGE)) {
      const found = [page, join(dirname(path), page)].find((file) => existsSync(file));
      if (found !== undefined && hasNumber(found, number)) continue;
      missing += 1;
      process.stdout.write(`${path}:${index + 1}: "${text}" does not exist\n`);
    }
  }
}
if (missing > 0) process.exitCode = 1;
