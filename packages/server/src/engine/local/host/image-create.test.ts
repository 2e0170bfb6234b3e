import {
  appendFile,
  chmod,
  cp,
  mkdir,
  mkdtemp,
  rm,
  symlink,
  unlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { assertSameTree } from './image-create.ts';

describe('a copy is compared with what was copied', () => {
  let top: string;
  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'howdah-image-'));
    await mkdir(join(top, 'from', 'base', '5'), { recursive: true });
    await writeFile(join(top, 'from', 'base', '5', '1259'), Buffer.alloc(3_000_000, 1));
    await writeFile(join(top, 'from', 'empty'), '');
    await symlink('base', join(top, 'from', 'link'));
    await cp(join(top, 'from'), join(top, 'to'), {
      recursive: true,
      preserveTimestamps: true,
      verbatimSymlinks: true,
    });
    await utimes(join(top, 'from', 'base', '5', '1259'), 1, 1);
    await utimes(join(top, 'to', 'base', '5', '1259'), 1, 1);
    for (const side of ['from', 'to']) await utimes(join(top, side, 'empty'), 1, 1);
  });
  afterEach(() => rm(top, { recursive: true }));

  const compared = () => assertSameTree(join(top, 'from'), join(top, 'to'));

  test('the same in all is the same', async () => {
    await expect(compared()).resolves.toBeUndefined();
  });

  const to = (...path: string[]) => join(top, 'to', ...path);
  test.each<[string, () => Promise<void>]>([
    [
      'a byte at the end of a large file',
      async () => {
        const other = Buffer.alloc(3_000_000, 1);
        other[2_999_999] = 2;
        await writeFile(to('base', '5', '1259'), other);
        await utimes(to('base', '5', '1259'), 1, 1);
      },
    ],
    ['a file that is longer', () => appendFile(to('empty'), 'x')],
    ['the time of writing', () => utimes(to('empty'), 2, 2)],
    ['a mode', () => chmod(to('base'), 0o711)],
    ['a missing file', () => unlink(to('empty'))],
    ['one too many', () => writeFile(to('base', 'more'), '')],
    [
      'a link that leads elsewhere',
      async () => (await unlink(to('link')), symlink('empty', to('link'))),
    ],
    [
      'a file in the place of a link',
      async () => (await unlink(to('link')), writeFile(to('link'), 'base')),
    ],
  ])('%s is seen', async (_, change) => {
    await change();
    await expect(compared()).rejects.toThrow(
      /the copy of .* in the new store is not the same: nothing was changed/,
    );
  });
});
