import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { expect, test, afterEach, beforeEach } from 'vitest';
import type { AddonExtension } from '@howdah/contract';
import {
  findInstallations,
  installationFor,
  installationOf,
  missingFor,
  whyNotStartable,
  type Installation,
  copyNpmFiles,
  ensureNpmCopy,
} from './installations.ts';

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
  timescaledb: null,
  readOnly: { path: null, missing: null },
});
const plain = installation(18, 'npm');
const vector = installation(17, 'system', ['vector']);
const both = installation(16, 'system', ['timescaledb', 'vector']);

test('the first that has every extension asked for', () => {
  expect(installationFor([plain, vector, both], [], null)).toBe(plain);
  expect(installationFor([plain, vector, both], ['ai'], null)).toBe(vector);
  expect(installationFor([plain, vector, both], ['time-series'], null)).toBe(both);
  expect(installationFor([plain, vector, both], ['time-series', 'ai'], null)).toBe(both);
  expect(installationFor([both, plain], [], null)).toBe(both);
});

test('none that has them all is none', () => {
  expect(installationFor([], [], null)).toBeNull();
  expect(installationFor([plain], ['ai'], null)).toBeNull();
  expect(
    installationFor(
      [vector, installation(17, 'npm', ['timescaledb'])],
      ['time-series', 'ai'],
      null,
    ),
  ).toBeNull();
});

test('a missing extension is reported with the installations found and the packages to add', () => {
  const missing = missingFor([plain], ['time-series', 'ai'], null);
  expect(missing).toContain('timescaledb and vector');
  expect(missing).toContain('PostgreSQL 18.1 (npm)');
  expect(missing).toContain(
    'apt-get install postgresql-17 postgresql-17-timescaledb postgresql-17-pgvector',
  );
  expect(missingFor([], [], null)).toContain('no PostgreSQL');
  expect(missingFor([], [], null)).toMatch(/apt-get install postgresql-17,/);
});

test('a major version that is asked for is the one, or there is none', () => {
  expect(installationFor([both, plain], [], 18)).toBe(plain);
  expect(installationFor([both, plain], ['ai'], 18)).toBeNull();
  const missing = missingFor([plain], ['ai'], 16);
  expect(missing).toContain('the extension vector for PostgreSQL 16 is needed');
  expect(missing).toContain('PGDG: apt-get install postgresql-16 postgresql-16-pgvector,');
  expect(missingFor([plain], [], 17)).toContain('On Debian 13: apt-get install postgresql-17,');
});

test('data stays with its installation, or another of its major', () => {
  const made = { installation: '16-system' };
  const needs = { addons: [], major: 16 };
  const other = installation(16, 'npm');
  expect(installationOf([plain, other, both], made, needs)).toBe(both);
  expect(installationOf([plain, other], made, needs)).toBe(other);
  expect(whyNotStartable([plain, other], made, needs)).toBeNull();
  expect(installationOf([plain], made, needs)).toBeNull();
  expect(whyNotStartable([plain], made, needs)).toContain('apt-get install postgresql-16,');
  // The record of an older release does not say it.
  expect(installationOf([plain, both], made, { addons: [], major: null })).toBe(both);
  expect(whyNotStartable([plain, both], made, { addons: [], major: null })).toBeNull();
  expect(whyNotStartable([plain, both], made, { addons: [], major: 18 })).toContain(
    'its data is of PostgreSQL 16, and its record says 18',
  );
  expect(whyNotStartable([both], null, { addons: [], major: 18 })).toContain('PostgreSQL 18');
});

test('the edition of TimescaleDB is that of its files', async () => {
  const home = await mkdtemp(join(tmpdir(), 'howdah-editions-'));
  /** A program that reports a version no machine has, and the files of a TimescaleDB. */
  const put = async (major: number, libraries: readonly string[]): Promise<void> => {
    const root = join(home, String(major));
    const extension = join(root, 'share', 'extension');
    for (const directory of ['bin', 'lib']) await mkdir(join(root, directory), { recursive: true });
    await mkdir(extension, { recursive: true });
    for (const program of ['postgres', 'initdb'])
      await writeFile(
        join(root, 'bin', program),
        `#!/bin/sh\necho "postgres (PostgreSQL) ${major}.1"\n`,
        { mode: 0o755 },
      );
    if (libraries.length > 0) await writeFile(join(extension, 'timescaledb.control'), '');
    for (const library of libraries) await writeFile(join(root, 'lib', library), '');
  };
  await put(97, ['timescaledb.so', 'timescaledb-2.22.1.so', 'timescaledb-tsl-2.22.1.so']);
  await put(98, ['timescaledb.so', 'timescaledb-2.22.1.so']);
  await put(99, []);
  const { usable } = await findInstallations({ installations: home, modules: home }, false);
  const editions = usable
    .filter(({ source }) => source === 'linked')
    .map(({ major, timescaledb, extensions }) => [major, timescaledb, extensions.length]);
  expect(editions).toEqual([
    [99, null, 0],
    [98, 'apache', 1],
    [97, 'community', 1],
  ]);
  await rm(home, { recursive: true });
});

let top: string;
let native: string;
let target: string;

beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'npm-copy-'));
  [native, target] = [join(top, 'native'), join(top, 'copies')];
  mkdirSync(join(native, 'bin'), { recursive: true, mode: 0o700 });
  mkdirSync(join(native, 'lib'), { mode: 0o700 });
  writeFileSync(join(native, 'bin', 'initdb'), 'program', { mode: 0o700 });
  writeFileSync(join(native, 'lib', 'libpq.so.5.18'), 'library', { mode: 0o600 });
  symlinkSync('libpq.so.5.18', join(native, 'lib', 'libpq.so.5'));
  const link = { source: 'native/lib/libpq.so.5.18', target: 'native/lib/libpq.so' };
  writeFileSync(join(native, 'pg-symlinks.json'), JSON.stringify([link]));
});
afterEach(() => rmSync(top, { recursive: true }));

const modeOf = (...names: string[]): number => statSync(join(target, ...names)).mode & 0o777;

test('a copy of closed files is open to all users, with the links that npm left out', async () => {
  await ensureNpmCopy(native, target);
  expect(modeOf('bin')).toBe(0o755);
  expect(modeOf('bin', 'initdb')).toBe(0o755);
  expect(modeOf('lib', 'libpq.so.5.18')).toBe(0o644);
  for (const name of ['libpq.so', 'libpq.so.5'])
    expect(readlinkSync(join(target, 'lib', name))).toBe('libpq.so.5.18');
});

test('an incomplete copy is completed, and a complete one is left alone', async () => {
  await ensureNpmCopy(native, target);
  const initdb = join(target, 'bin', 'initdb');
  const before = lstatSync(initdb).ino;
  truncateSync(join(target, 'lib', 'libpq.so.5.18'), 3);
  rmSync(join(target, 'lib', 'libpq.so'));
  expect(await copyNpmFiles(native, target)).toBe(true);
  expect(readFileSync(join(target, 'lib', 'libpq.so'), 'utf8')).toBe('library');
  // A server may run from it.
  expect(lstatSync(initdb).ino).toBe(before);
  expect(await copyNpmFiles(native, target)).toBe(false);
});

test.runIf(process.getuid?.() === 0)('a copy that was closed is opened', async () => {
  await ensureNpmCopy(native, target);
  for (const name of ['bin', join('bin', 'initdb')]) chmodSync(join(target, name), 0o700);
  await copyNpmFiles(native, target);
  expect([modeOf('bin'), modeOf('bin', 'initdb')]).toEqual([0o755, 0o755]);
});
