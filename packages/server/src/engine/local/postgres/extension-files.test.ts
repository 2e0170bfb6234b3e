import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, afterEach, beforeEach } from 'vitest';
import { trustedControls, untrustedControls } from './extension-files.ts';
import { parseControlFile } from '../../postgres/contents/control-file.ts';

const TEXT = `# the control file
comment = 'it''s an example'   # in quotes
default_version = '1.2'
module_pathname = '$libdir/example'
relocatable = false
trusted = true
superuser = false
schema = pg_catalog
requires = 'cube, hstore'
`;

test('a control file is read as PostgreSQL reads it', () => {
  const files = ['1.0.sql', '1.0--1.2.sql', '1.2.sql', '1.2--1.3.sql'].map(
    (one) => `example--${one}`,
  );
  files.push('other--1.sql', 'example--2.control');
  expect(parseControlFile({ name: 'example', directory: '/x', files }, TEXT)).toEqual({
    name: 'example',
    directory: '/x',
    defaultVersion: '1.2',
    comment: "it's an example",
    requires: ['cube', 'hstore'],
    trusted: true,
    superuser: false,
    relocatable: false,
    schema: 'pg_catalog',
    versions: ['1.0', '1.2'],
    reachable: ['1.0', '1.2', '1.3'],
  });
});

test('an extension needs a superuser unless its control file denies it', () => {
  expect(parseControlFile({ name: 'example', directory: '/x', files: [] }, '')).toMatchObject({
    defaultVersion: null,
    requires: [],
    trusted: false,
    superuser: true,
    relocatable: false,
    schema: null,
  });
});

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'hd-controls-'));
  await mkdir(join(root, 'share', 'extension'), { recursive: true });
});
afterEach(() => rm(root, { recursive: true }));

const control = (name: string): string => join(root, 'share', 'extension', `${name}.control`);
const bin = (): string => join(root, 'bin');

test('only extensions that were judged get a control file that calls them trusted', async () => {
  const text = "default_version = '0.8.0'\nrelocatable = true";
  for (const name of ['vector', 'hypopg']) await writeFile(control(name), text);
  const modules = join(root, 'modules');
  const seen = await trustedControls(bin(), { modules });
  expect(seen.map(({ target }) => target)).toEqual([control('vector')]);
  const made = await readFile(seen[0]?.source ?? '', 'utf8');
  expect(parseControlFile({ name: 'vector', directory: '', files: [] }, made)).toMatchObject({
    trusted: true,
    relocatable: true,
    defaultVersion: '0.8.0',
  });
});

test('an updated package has its new version at the next start', async () => {
  const modules = join(root, 'modules');
  for (const version of ['0.8.0', '0.8.1']) {
    await writeFile(control('vector'), `default_version = '${version}'\n`);
    const [seen] = await trustedControls(bin(), { modules });
    expect(await readFile(seen?.source ?? '', 'utf8')).toContain(version);
  }
});

test('a control file that is trusted already stays as it is', async () => {
  await writeFile(control('vector'), "default_version = '1'\ntrusted = true\n");
  expect(await untrustedControls(bin())).toEqual([]);
});
