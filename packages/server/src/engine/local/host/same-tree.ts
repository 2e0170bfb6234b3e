/** Compares a copy with what was copied, before what was copied is given up. */
import type { Stats } from 'node:fs';
import { constants, lstat, open, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { noneOf } from '../../../lib/processes.ts';

/**
 * @throws Error naming the first path that is not the same, in kind, owner, mode, time of writing
 * or content
 */
export async function assertSameTree(from: string, to: string): Promise<void> {
  const visit = async (path: string): Promise<void> => {
    const [one, other] = [join(from, path), join(to, path)];
    const [before, after] = await Promise.all(
      [one, other].map((side) => lstat(side).catch(noneOf('ENOENT'))),
    );
    if (!before || !after || !(await areSame(one, before, other, after))) {
      throw new Error(
        `the copy of ${one} in the new store is not the same: nothing was changed, the data stays where it is; does somebody write there?`,
      );
    }
    if (!before.isDirectory()) return;
    const entries = await Promise.all([readdir(one), readdir(other)]);
    for (const entry of new Set(entries.flat())) await visit(join(path, entry));
  };
  await visit('');
}

async function areSame(one: string, before: Stats, other: string, after: Stats): Promise<boolean> {
  if (before.mode !== after.mode || before.uid !== after.uid || before.gid !== after.gid)
    return false;
  if (before.isSymbolicLink()) return (await readlink(one)) === (await readlink(other));
  if (!before.isFile()) return true;
  return (
    before.size === after.size && before.mtimeMs === after.mtimeMs && haveSameBytes(one, other)
  );
}

async function haveSameBytes(one: string, other: string): Promise<boolean> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const files = await Promise.all([open(one, flags), open(other, flags)]);
  const [a, b] = [Buffer.alloc(1 << 20), Buffer.alloc(1 << 20)];
  try {
    for (;;) {
      const [left, right] = await Promise.all([files[0].read(a), files[1].read(b)]);
      if (
        left.bytesRead !== right.bytesRead ||
        a.compare(b, 0, right.bytesRead, 0, left.bytesRead) !== 0
      )
        return false;
      if (left.bytesRead === 0) return true;
    }
  } finally {
    for (const file of files) await file.close();
  }
}
