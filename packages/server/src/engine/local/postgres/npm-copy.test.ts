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
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { copyNpmFiles, ensureNpmCopy } from './npm-copy.ts';

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
