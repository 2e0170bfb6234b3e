import { link, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Repository } from '../../../repository/repository.ts';
import { run } from '../../../lib/run.ts';
import { refuseLinks } from './fetch.ts';

let data: string;
beforeEach(async () => {
  data = await mkdtemp(join(tmpdir(), 'howdah-'));
  await mkdir(join(data, 'base'));
  await writeFile(join(data, 'PG_VERSION'), '18\n');
});
afterEach(() => rm(data, { recursive: true }));

const REPOSITORY: Repository = {
  id: 'kit',
  name: 'elsewhere',
  storage: { type: 'path', directory: '/elsewhere' },
  passphrase: 'secret',
};
const refuse = () => refuseLinks(REPOSITORY, data);

test('restored data with directories and files only is accepted', async () => {
  await expect(refuse()).resolves.toBeUndefined();
});

test.each<[string, (inside: string) => Promise<unknown>]>([
  ['a symbolic link', (inside) => symlink('/etc', inside)],
  ['a link that leads nowhere', (inside) => symlink('nowhere', inside)],
  ['a file with two names', (inside) => link(join(data, 'PG_VERSION'), inside)],
  ['a pipe', (inside) => run('mkfifo', [inside])],
])('restored data with %s is refused', async (_, make) => {
  await make(join(data, 'base', '1'));
  await expect(refuse()).rejects.toThrow('the repository elsewhere has a backup with links');
});
