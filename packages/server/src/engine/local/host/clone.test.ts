import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { cloneTree, type Cloning } from './clone.ts';

const COPYING: Cloning = { cloneMethod: 'copy', shares: { joinCopies: () => undefined } };

test('a copy has every byte and mode, also of large files, and leaves out the rest', async () => {
  const top = await mkdtemp(join(tmpdir(), 'howdah-clone-'));
  try {
    const [from, to] = [join(top, 'from'), join(top, 'to')];
    await mkdir(join(from, 'base'), { recursive: true });
    await mkdir(join(from, 'pg_replslot', 'slot'), { recursive: true });
    // Longer than 64 MB, and no whole number of blocks.
    const large = Buffer.concat([Buffer.alloc(64e6, randomBytes(8192)), randomBytes(123)]);
    await writeFile(join(from, 'base', 'large'), large, { mode: 0o600 });
    await writeFile(join(from, 'base', 'small'), 'small', { mode: 0o640 });
    await writeFile(join(from, 'postmaster.pid'), '1');
    await cloneTree(from, to, COPYING, null, {
      contentsOf: ['pg_replslot'],
      files: ['postmaster.pid'],
      vanished: false,
    });
    expect((await readFile(join(to, 'base', 'large'))).equals(large)).toBe(true);
    expect(await readFile(join(to, 'base', 'small'), 'utf8')).toBe('small');
    const modes = await Promise.all(
      ['', 'base', 'base/large', 'base/small'].map(
        async (path) => (await stat(join(to, path))).mode & 0o777,
      ),
    );
    expect(modes).toEqual([0o700, 0o700, 0o600, 0o640]);
    await expect(stat(join(to, 'pg_replslot', 'slot'))).rejects.toThrow(/ENOENT/);
    await expect(stat(join(to, 'postmaster.pid'))).rejects.toThrow(/ENOENT/);
  } finally {
    await rm(top, { recursive: true });
  }
});

test('a copy makes nothing above itself: what was removed meanwhile stays away', async () => {
  const top = await mkdtemp(join(tmpdir(), 'howdah-clone-'));
  try {
    await mkdir(join(top, 'from', 'base'), { recursive: true });
    await expect(
      cloneTree(join(top, 'from'), join(top, 'removed', 'to'), COPYING, null),
    ).rejects.toThrow(/ENOENT/);
    expect(await readdir(top)).toEqual(['from']);
  } finally {
    await rm(top, { recursive: true });
  }
});
