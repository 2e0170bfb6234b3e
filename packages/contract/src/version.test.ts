import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { VERSION } from './version.ts';

test('the version is that of the package', () => {
  const root = new URL('../../../package.json', import.meta.url);
  expect(JSON.parse(readFileSync(root, 'utf8'))).toMatchObject({ version: VERSION });
});
