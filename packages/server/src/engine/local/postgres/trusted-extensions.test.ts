import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseControlFile } from './extension-files.ts';
import { trustedControls, untrustedControls } from './trusted-extensions.ts';

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
