import {
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import {
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rm,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { cloneTree, removeTree, type Cloning } from '../engine/local/host/clone.ts';
import { bytesBelow } from '../engine/local/host/space.ts';
import { run } from './run.ts';
import {
  copyInto,
  emptyDirectory,
  entryExists,
  listEntries,
  openFile,
  openFileOrNull,
  openForEditing,
  openPipe,
  readBytes,
  readText,
  readTextIfSafe,
  removeEntry,
  statEntry,
  writeText,
} from './untrusted-files.ts';
import { Directory, UnsafeEntry } from './untrusted-directory.ts';

const COPYING: Cloning = { cloneMethod: 'copy', shares: { joinCopies: () => undefined } };

/** A user that has nothing to do with the machine's files. */
const TENANT = { uid: 65_534, gid: 65_534 };
/** Libuv may give a copy the owner of its source. */
const OTHER_TENANT = { uid: 65_533, gid: 65_533 };
const SECRET = 'only root may read this';
const isRoot = process.getuid?.() === 0;

let top: string;
/** As services/ID: only root can write there. */
let service: string;
/** As its data directory: its user's. */
let data: string;
let outside: string;
let secret: string;
let server: Server | null = null;

beforeEach(async () => {
  top = await realpath(await mkdtemp(join(tmpdir(), 'howdah-files-')));
  [service, outside] = [join(top, 'service'), join(top, 'outside')];
  [data, secret] = [join(service, 'data'), join(outside, 'secret')];
  await mkdir(service, { mode: 0o710 });
  await mkdir(data, { mode: 0o700 });
  await mkdir(outside, { mode: 0o700 });
  await writeFile(secret, SECRET, { mode: 0o600 });
  if (isRoot) await chown(data, TENANT.uid, TENANT.gid);
});

afterEach(async () => {
  server?.close();
  server = null;
  await rm(top, { recursive: true, force: true });
});

/** The state of the files outside: nothing that is done below the service changes it. */
async function stateOfOutside(): Promise<unknown> {
  const { uid, gid, mode, nlink } = lstatSync(outside);
  const inside = await Promise.all(
    (await readdir(outside)).map(async (name) => {
      const found = await lstat(join(outside, name));
      return [name, found.uid, found.gid, found.mode, await readFile(join(outside, name), 'utf8')];
    }),
  );
  return { uid, gid, mode, nlink, inside };
}

/** Entries that the user of a service, or an attacker who has become it, may put under a name. */
const HOSTILE: Record<string, (path: string) => Promise<unknown>> = {
  'a link to a file of root': (path) => symlink(secret, path),
  'a link to a missing file': (path) => symlink(join(outside, 'made'), path),
  'a link to a directory': (path) => symlink(outside, path),
  'a FIFO': (path) => run('mkfifo', [path]),
  'a directory': (path) => mkdir(join(path, 'inside'), { recursive: true }),
  'a socket': (path) =>
    new Promise((resolve) => {
      server = createServer().listen(path, () => resolve(undefined));
    }),
  ...(isRoot
    ? {
        'a second name of a file of root': async (path: string) => linkSync(secret, path),
        'a file of root with one name': async (path: string) =>
          writeFileSync(path, SECRET, { mode: 0o600 }),
        'a device': (path: string) => run('mknod', [path, 'c', '1', '5']),
      }
    : {}),
};

describe.each(Object.entries(HOSTILE))('in the place of a file stands %s', (kind, make) => {
  let path: string;
  beforeEach(async () => {
    path = join(data, 'file');
    await make(path);
  });

  test('no reader reads it, or waits for it', async () => {
    const before = await stateOfOutside();
    expect(() => readText(path)).toThrow(UnsafeEntry);
    await expect(readBytes(path, 1000)).rejects.toThrow(UnsafeEntry);
    await expect(openFile(path)).rejects.toThrow(UnsafeEntry);
    await expect(openForEditing(path)).rejects.toThrow(UnsafeEntry);
    await expect(copyInto(path, join(data, 'copy'), null)).rejects.toThrow(UnsafeEntry);
    expect(readTextIfSafe(path)).toBeNull();
    expect(await openFileOrNull(path)).toBeNull();
    if (kind !== 'a FIFO') expect(() => openPipe(path)).toThrow(UnsafeEntry);
    expect(entryExists(path)).toBe(true);
    expect(await bytesBelow(data)).toBeLessThan(10_000);
    expect(await stateOfOutside()).toEqual(before);
  });

  test('a writer puts a new file in its place, or says what is in the way', async () => {
    const before = await stateOfOutside();
    const owner = isRoot ? TENANT : null;
    if (kind === 'a directory') {
      await expect(writeText(path, 'ours', owner)).rejects.toThrow(
        'data/file is a directory; a regular file belongs there',
      );
      expect(await readdir(data)).toEqual(['file']);
    } else {
      await writeText(path, 'ours', owner);
      expect(await readFile(path, 'utf8')).toBe('ours');
      expect(await lstat(path)).toMatchObject({ nlink: 1, ...owner });
    }
    expect(withoutLinks(await stateOfOutside())).toEqual(withoutLinks(before));
  });

  test('a copy of a file that ends early takes no more of the disk than the file', async () => {
    const from = join(data, 'early');
    await writeFile(from, 'x');
    await truncate(from, 16 * 1024 ** 2);
    if (isRoot) await chown(from, TENANT.uid, TENANT.gid);
    await copyInto(from, join(data, 'copy'), isRoot ? TENANT : null);
    const { size, blocks } = await lstat(join(data, 'copy'));
    expect(size).toBe(16 * 1024 ** 2);
    expect(blocks * 512).toBeLessThan(1024 ** 2);
    expect((await readFile(join(data, 'copy'))).equals(await readFile(from))).toBe(true);
  });

  test('a writer whose temporary name is taken writes all the same', async () => {
    const before = await stateOfOutside();
    await writeFile(join(data, 'good'), 'before');
    if (isRoot) await chown(join(data, 'good'), TENANT.uid, TENANT.gid);
    await make(join(data, 'good.new'));
    await writeText(join(data, 'good'), 'after', isRoot ? TENANT : null);
    expect(await readFile(join(data, 'good'), 'utf8')).toBe('after');
    await make(join(data, 'copy.new'));
    await copyInto(join(data, 'good'), join(data, 'copy'), isRoot ? OTHER_TENANT : null, true);
    if (isRoot) expect(statEntry(join(data, 'copy'))).toMatchObject(OTHER_TENANT);
    expect(await readFile(join(data, 'copy'), 'utf8')).toBe('after');
    expect(entryExists(join(data, 'copy.new'))).toBe(false);
    expect(withoutLinks(await stateOfOutside())).toEqual(withoutLinks(before));
  });

  test('it is removed itself, with what is in it, and nothing that it points to', async () => {
    const before = await stateOfOutside();
    await removeEntry(path);
    expect(statEntry(path)).toBeNull();
    await removeEntry(path);
    await make(join(data, 'again'));
    await emptyDirectory(data);
    expect(await readdir(data)).toEqual([]);
    await make(join(data, 'again'));
    await removeTree(service, 'copy');
    expect(await readdir(top)).toEqual(['outside']);
    expect(withoutLinks(await stateOfOutside())).toEqual(withoutLinks(before));
  });

  test('a clone of its directory does not have what it points to', async () => {
    const before = await stateOfOutside();
    const clone = cloneTree(data, join(service, 'clone'), COPYING, isRoot ? TENANT : null);
    // A clone has no sockets, no FIFOs and no devices; it never had.
    if (kind === 'a FIFO' || kind === 'a socket' || kind === 'a directory' || kind === 'a device') {
      await clone;
      expect(await readdir(join(service, 'clone'))).toEqual(kind === 'a directory' ? ['file'] : []);
    } else
      await expect(clone).rejects.toThrow(
        /^(data\/)?file (is a symbolic link|has 2 names|belongs to user 0)/,
      );
    expect(await stateOfOutside()).toEqual(before);
  });
});

describe('in the place of a directory stands a link to one outside', () => {
  let path: string;
  beforeEach(async () => {
    path = join(data, 'pg_wal');
    await symlink(outside, path);
  });

  test.runIf(isRoot)('nothing is read, written, removed or listed through it', async () => {
    const before = await stateOfOutside();
    const owner = TENANT;
    expect(() => readText(join(path, 'secret'))).toThrow(
      'data/pg_wal is a symbolic link; a directory belongs there',
    );
    expect(() => statEntry(join(path, 'secret'))).toThrow(UnsafeEntry);
    await expect(openFile(join(path, 'secret'))).rejects.toThrow(UnsafeEntry);
    await expect(openForEditing(join(path, 'secret'))).rejects.toThrow(UnsafeEntry);
    await expect(readBytes(join(path, 'secret'), 1000)).rejects.toThrow(UnsafeEntry);
    await expect(writeText(join(path, 'made'), 'x', owner)).rejects.toThrow(UnsafeEntry);
    await expect(removeEntry(join(path, 'secret'))).rejects.toThrow(UnsafeEntry);
    await expect(listEntries(path)).rejects.toThrow(UnsafeEntry);
    await expect(emptyDirectory(path)).rejects.toThrow(UnsafeEntry);
    await expect(bytesBelow(path)).rejects.toThrow(UnsafeEntry);
    await writeFile(join(data, 'good'), 'x');
    await chown(join(data, 'good'), owner.uid, owner.gid);
    await expect(copyInto(join(data, 'good'), join(path, 'made'), owner)).rejects.toThrow(
      UnsafeEntry,
    );
    await expect(cloneTree(path, join(service, 'clone'), COPYING, owner)).rejects.toThrow(
      UnsafeEntry,
    );
    expect(await stateOfOutside()).toEqual(before);
  });

  test.runIf(isRoot)('one further above is no way either', async () => {
    await mkdir(join(outside, 'below'));
    await writeFile(join(outside, 'below', 'secret'), SECRET);
    expect(() => readText(join(path, 'below', 'secret'))).toThrow(UnsafeEntry);
    await expect(writeText(join(path, 'below', 'made'), 'x', TENANT)).rejects.toThrow(UnsafeEntry);
    await expect(removeEntry(join(path, 'below'))).rejects.toThrow(UnsafeEntry);
    expect(await readdir(join(outside, 'below'))).toEqual(['secret']);
  });

  test('a link of the operator, in a directory that only root can write, is followed', async () => {
    const [archive, disk] = [join(service, 'archive'), join(top, 'disk')];
    await mkdir(disk, { mode: 0o700 });
    if (isRoot) await chown(disk, TENANT.uid, TENANT.gid);
    await symlink('../disk', archive);
    await writeText(join(archive, 'wal'), 'wal', isRoot ? TENANT : null);
    expect(await listEntries(archive)).toEqual(['wal']);
    expect(readText(join(archive, 'wal'))).toBe('wal');
    await removeEntry(join(archive, 'wal'));
    expect(await readdir(disk)).toEqual([]);
    await rm(disk, { recursive: true });
    await expect(listEntries(archive)).rejects.toThrow('ENOENT');
    expect(readText(join(archive, 'wal'))).toBeNull();
  });
});

test('a directory that a link replaces meanwhile is worked on to the end, no other', async () => {
  const path = join(data, 'base');
  await mkdir(path);
  await writeFile(join(path, 'secret'), 'of the service');
  if (isRoot)
    for (const made of [path, join(path, 'secret')]) await chown(made, TENANT.uid, TENANT.gid);
  const before = await stateOfOutside();
  const directory = Directory.open(path);
  renameSync(path, join(data, 'moved'));
  symlinkSync(outside, path);
  const { fd } = directory.openFile('secret');
  expect(readFileSync(fd, 'utf8')).toBe('of the service');
  await directory.removeContents();
  expect(await readdir(join(data, 'moved'))).toEqual([]);
  directory.close();
  expect(await stateOfOutside()).toEqual(before);
});

test('a tree that is replaced by a link during its removal loses nothing outside', async () => {
  const before = await stateOfOutside();
  for (let index = 0; index < 40; index++) {
    const child = join(data, 'base', String(index));
    mkdirSync(child, { recursive: true });
    for (let file = 0; file < 10; file++) writeFileSync(join(child, 'secret' + file), '');
  }
  let done = false;
  const removed = removeEntry(join(data, 'base')).then(
    () => (done = true),
    () => (done = true),
  );
  const swap = async (): Promise<void> => {
    for (let index = 0; !done; index = (index + 1) % 40) {
      const child = join(data, 'base', String(index));
      try {
        renameSync(child, join(data, `away${index}`));
        symlinkSync(outside, child);
      } catch {
        // gone already
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await Promise.all([swap(), removed]);
  expect(await stateOfOutside()).toEqual(before);
});

test("a clone is nobody else's before it is whole, and keeps no privilege", async () => {
  await writeFile(join(data, 'program'), '#!/bin/sh\n');
  if (isRoot) await chown(join(data, 'program'), TENANT.uid, TENANT.gid);
  await run('chmod', ['4755', join(data, 'program')]);
  await cloneTree(data, join(service, 'clone'), COPYING, isRoot ? TENANT : null);
  expect((await lstat(join(service, 'clone'))).mode & 0o777).toBe(0o700);
  expect(await lstat(join(service, 'clone', 'program'))).toMatchObject({
    mode: 0o100755,
    ...(isRoot ? TENANT : {}),
  });
});

test('a reader takes no more than its limit', async () => {
  const path = join(data, 'large');
  await writeFile(path, Buffer.alloc(2 * 1024 ** 2));
  if (isRoot) await chown(path, TENANT.uid, TENANT.gid);
  expect(() => readText(path)).toThrow(
    'data/large has 2097152 bytes; at most 1048576 belong there',
  );
  await expect(readBytes(path, 1000)).rejects.toThrow(UnsafeEntry);
});

/** A second name goes when its entry is replaced or removed; all else stays. */
function withoutLinks(state: unknown): unknown {
  return JSON.parse(
    JSON.stringify(state, (key, value: unknown) => (key === 'nlink' ? undefined : value)),
  );
}
