import { expect, test } from 'vitest';
import { withVariable } from './env-file.ts';

const URL = 'postgres://tsdbadmin:secret@127.0.0.1:20004/tsdb?sslmode=require';

test('a variable is added at the end, and replaced where it is; other lines stay', () => {
  expect(withVariable('', 'DATABASE_URL', URL)).toBe(`DATABASE_URL=${URL}\n`);
  expect(withVariable('# mine\nA=1', 'DATABASE_URL', URL)).toBe(
    `# mine\nA=1\nDATABASE_URL=${URL}\n`,
  );
  const before = 'A=1\nDATABASE_URL="postgres://old"\n\n# last\nB = 2\n';
  expect(withVariable(before, 'DATABASE_URL', URL)).toBe(
    `A=1\nDATABASE_URL=${URL}\n\n# last\nB = 2\n`,
  );
});

test('an export stays one, and a name that only ends alike is another variable', () => {
  expect(withVariable('export URL=old\n', 'URL', URL)).toBe(`export URL=${URL}\n`);
  expect(withVariable('TEST_URL=old\n', 'URL', URL)).toBe(`TEST_URL=old\nURL=${URL}\n`);
  expect(withVariable('# URL=old\n', 'URL', URL)).toBe(`# URL=old\nURL=${URL}\n`);
});

test('a later assignment of the same name goes, since it would win', () => {
  expect(withVariable('URL=1\nA=2\nURL=3\n', 'URL', URL)).toBe(`URL=${URL}\nA=2\n`);
});

test('characters that shells or dotenv expand are quoted', () => {
  expect(withVariable('', 'URL', 'a&b')).toBe('URL="a&b"\n');
  expect(withVariable('', 'URL', 'a"b$c`d\\e')).toBe('URL="a\\"b\\$c\\`d\\\\e"\n');
});
