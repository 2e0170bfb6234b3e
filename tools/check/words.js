// Finds words that docs/glossary.md says not to use, and fails when there are any.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const GLOSSARY = 'docs/glossary.md';
const TEXT = /(\.(ts|tsx|js|mjs|sql|md|css|html|sh)|^howdah|\.ci\/run)$/;
/** Generated files, the list itself, migrations that have run, and the reader and the test of what older releases wrote. */
const EXEMPT =
  /(^|\/)generated\/|^docs\/glossary\.md$|^packages\/server\/migrations\/00(0\d|1[0-6])_|engine\/local\/host\/marker(\.test)?\.ts$|server\/test\/upgrade\.test\.ts$/;

/** @returns {{ pattern: RegExp, scope: string, instead: string }[]} */
function refused() {
  const table = readFileSync(GLOSSARY, 'utf8').split('## Words that are not used')[1] ?? '';
  const rows = [...table.matchAll(/^\| `(.+)` \| (.+?) \| (.+?) \|$/gm)];
  if (rows.length === 0) throw new Error(`${GLOSSARY}: no table of words`);
  return rows.map(([, pattern = '', scope = '', instead = '']) => ({
    pattern: new RegExp(pattern.replaceAll('\\|', '|'), 'i'),
    scope: scope === 'everywhere' ? '' : scope,
    instead,
  }));
}

const words = refused();
const files = execFileSync('git', ['ls-files'], { encoding: 'utf8' })
  .split('\n')
  .filter((path) => TEXT.test(path) && !EXEMPT.test(path));
let hits = 0;
for (const path of files) {
  const rules = words.filter(({ scope }) => path.startsWith(scope));
  for (const [index, line] of readFileSync(path, 'utf8').split('\n').entries()) {
    for (const { pattern, instead } of rules) {
      const [found] = pattern.exec(line) ?? [];
      if (found === undefined) continue;
      hits += 1;
      process.stdout.write(`${path}:${index + 1}: "${found}": use ${instead}\n`);
    }
  }
}
if (hits > 0) {
  process.stdout.write(`${hits} words that ${GLOSSARY} replaces\n`);
  process.exitCode = 1;
}
