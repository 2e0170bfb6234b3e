import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { SETTINGS } from './config.ts';

test('the table of settings in docs/operating.md says what SETTINGS says', () => {
  const text = readFileSync(new URL('../../../docs/operating.md', import.meta.url), 'utf8');
  const section = text.split('\n## ').find((part) => part.startsWith('Settings\n')) ?? '';
  const rows = section.split('\n').filter((line) => line.startsWith('| `'));
  expect(rows).toEqual(
    Object.entries(SETTINGS).map(
      ([name, { flag, default: fallback, meaning }]) =>
        `| \`${name}\` | \`${flag}\` | ${fallback} | ${meaning} |`,
    ),
  );
});
