import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { pathCleaner } from './path-cleaner.ts';

const home = mkdtempSync(join(tmpdir(), 'howdah-paths-'));
const [real, link] = [join(home, 'disk', 'data'), join(home, 'data')];
mkdirSync(real, { recursive: true });
symlinkSync(real, link);
afterAll(() => rmSync(home, { recursive: true }));

test.each([
  [`open '${link}/services/a/data/PG_VERSION'`, `open 'services/a/data/PG_VERSION'`],
  [`open '${real}/services/a'; ${link}/trash`, `open 'services/a'; trash`],
  [`ENOSPC: mkdir ${link}`, 'ENOSPC: mkdir the data directory'],
  [`${link}2/a`, `${link}2/a`],
  ['/etc/passwd', '/etc/passwd'],
])('%j names no path of the data directory: %j', (text, cleaned) => {
  expect(pathCleaner(link)(text)).toBe(cleaned);
});
