import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { formOf, ownCommand } from './installation-form.ts';

let scratch: string;
beforeEach(() => {
  scratch = mkdtempSync(join(tmpdir(), 'howdah-installed.'));
});
afterEach(() => rmSync(scratch, { recursive: true }));

function install(root: string, form?: string): string {
  mkdirSync(root, { recursive: true });
  writeFileSync(join(root, 'howdah'), '#!/bin/sh\n');
  chmodSync(join(root, 'howdah'), 0o755);
  if (form !== undefined) writeFileSync(join(root, 'installed-as'), `${form}\n`);
  return root;
}

test('a form is what a package says; npx is known by its cache', () => {
  expect(formOf(install(join(scratch, 'clone')))).toBe('clone');
  expect(formOf(install(join(scratch, 'lib/node_modules/howdah'), 'npm'))).toBe('npm');
  expect(formOf(install(join(scratch, '_npx/1a2b/node_modules/howdah'), 'npm'))).toBe('npx');
  expect(formOf(install(join(scratch, 'image'), 'image'))).toBe('image');
});

test('a command is short only if other terminals find the same program by it', () => {
  const root = install(join(scratch, 'a clone'));
  const bin = join(scratch, 'bin');
  mkdirSync(bin);
  const path = `/nonexistent::${bin}`;
  expect(ownCommand(root, path)).toBe(`'${root}/howdah'`);
  symlinkSync(join(root, 'howdah'), join(bin, 'howdah'));
  expect(ownCommand(root, path)).toBe('howdah');
  // Another program of that name comes first.
  install(join(scratch, 'other'));
  expect(ownCommand(root, `${join(scratch, 'other')}:${path}`)).toBe(`'${root}/howdah'`);
});

test('directories that npm adds to the PATH do not count', () => {
  const root = install(join(scratch, '_npx/1a2b/node_modules/howdah'), 'npm');
  const bin = join(scratch, '_npx/1a2b/node_modules/.bin');
  mkdirSync(bin);
  symlinkSync(join(root, 'howdah'), join(bin, 'howdah'));
  expect(ownCommand(root, bin)).toBe(join(root, 'howdah'));
});
