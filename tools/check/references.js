// Finds references to pages, headings, sections and traps of docs/ that do not exist.
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

/** The names of links to the headings of a page, as GitHub makes them. @param {string} page */
function anchorsOf(page) {
  const text = readFileSync(page, 'utf8').replaceAll(/^```.*?^```/gms, '');
  /** @type {Map<string, number>} */
  const seen = new Map();
  return [...text.matchAll(/^#{1,6} (.*)$/gm)].map(([, heading = '']) => {
    const words = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const name = words.replaceAll(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(/\s/g, '-');
    const before = seen.get(name) ?? 0;
    seen.set(name, before + 1);
    return before === 0 ? name : `${name}-${before}`;
  });
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
const LINK = /\]\(([^()\s#:]*\.md|)#([^()\s]+)\)/g;
for (const path of files.filter((file) => file.endsWith('.md'))) {
  for (const [index, line] of readFileSync(path, 'utf8').split('\n').entries()) {
    for (const [, page = '', anchor = ''] of line.matchAll(LINK)) {
      const target = page === '' ? path : join(dirname(path), page);
      if (!existsSync(target) || anchorsOf(target).includes(anchor)) continue;
      missing += 1;
      process.stdout.write(`${path}:${index + 1}: ${target} has no heading for #${anchor}\n`);
    }
  }
}
if (missing > 0) process.exitCode = 1;
