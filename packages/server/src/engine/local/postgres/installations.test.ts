import { expect, test } from 'vitest';
import type { AddonExtension } from '@howdah/contract';
import { installationFor, missingFor, type Installation } from './installations.ts';

const installation = (
  major: number,
  source: 'system' | 'npm',
  extensions: AddonExtension[] = [],
): Installation => ({
  name: `${major}-${source}`,
  major,
  version: `${major}.1`,
  bin: `/${major}`,
  source,
  extensions,
  readOnly: { path: null, missing: null },
});
const plain = installation(18, 'npm');
const vector = installation(17, 'system', ['vector']);
const both = installation(16, 'system', ['timescaledb', 'vector']);

test('the first that has every extension asked for', () => {
  expect(installationFor([plain, vector, both], [])).toBe(plain);
  expect(installationFor([plain, vector, both], ['ai'])).toBe(vector);
  expect(installationFor([plain, vector, both], ['time-series'])).toBe(both);
  expect(installationFor([plain, vector, both], ['time-series', 'ai'])).toBe(both);
  expect(installationFor([both, plain], [])).toBe(both);
});

test('none that has them all is none', () => {
  expect(installationFor([], [])).toBeNull();
  expect(installationFor([plain], ['ai'])).toBeNull();
  expect(
    installationFor([vector, installation(17, 'npm', ['timescaledb'])], ['time-series', 'ai']),
  ).toBeNull();
});

test('a missing extension is reported with the installations found and the packages to add', () => {
  const missing = missingFor([plain], ['time-series', 'ai']);
  expect(missing).toContain('timescaledb and vector');
  expect(missing).toContain('PostgreSQL 18.1 (npm)');
  expect(missing).toContain(
    'apt-get install postgresql-17 postgresql-17-timescaledb postgresql-17-pgvector',
  );
  expect(missingFor([], [])).toContain('no PostgreSQL');
  expect(missingFor([], [])).toMatch(/apt-get install postgresql-17,/);
});
