import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { quotedWord } from './shell.ts';

test.each([
  '/srv/howdah',
  '/srv/my data',
  "/srv/o'clock #1",
  '/srv/$HOME/`id`;"x"',
  'a\nb',
  '',
  '~',
])('a shell takes %j as one word, unchanged', (text) => {
  const command = `printf '%s|' ${quotedWord(text)}`;
  expect(execFileSync('sh', ['-c', command], { encoding: 'utf8' })).toBe(`${text}|`);
});
