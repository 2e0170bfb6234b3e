import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { checkPages, PAGE_BYTES, pageChecksum } from './checksums.ts';

/** A page of arbitrary bytes that carries its checksum. */
function page(seed: number, block: number): Buffer {
  const made = Buffer.from(
    Uint8Array.from({ length: PAGE_BYTES }, (_, index) => (index * 31 + seed) % 251),
  );
  made.writeUInt16LE(pageChecksum(made, block), 8);
  return made;
}

async function checkFile(contents: Buffer, name = '16384') {
  const data = await mkdtemp(join(tmpdir(), 'howdah-pages-'));
  try {
    await mkdir(join(data, 'base', '5'), { recursive: true });
    await mkdir(join(data, 'global'));
    await writeFile(join(data, 'base', '5', name), contents);
    await writeFile(join(data, 'base', '5', 'pg_filenode.map'), 'no relation');
    return await checkPages(data, new AbortController().signal);
  } finally {
    await rm(data, { recursive: true });
  }
}

// Reckoned by this code when it agreed with `pg_checksums` on all 2798 pages of a cluster of
// PostgreSQL 15.
test('the checksum of a page depends on its contents and number, not on the one it has', () => {
  const made = page(1, 0);
  expect(pageChecksum(made, 0)).toBe(CHECKSUM);
  expect(pageChecksum(made, 1)).not.toBe(CHECKSUM);
  made.writeUInt16LE(0, 8);
  expect(pageChecksum(made, 0)).toBe(CHECKSUM);
});
const CHECKSUM = 39_018;

test('whole pages pass, never used ones too', async () => {
  expect(
    await checkFile(Buffer.concat([page(1, 0), page(2, 1), Buffer.alloc(PAGE_BYTES)])),
  ).toEqual({ files: 1, pages: 3 });
  expect(await checkFile(page(3, 131_072), '16384.1')).toEqual({ files: 1, pages: 1 });
  expect(await checkFile(Buffer.from('x'), '16384.new')).toEqual({ files: 0, pages: 0 });
});

test('a flipped bit, a misplaced, an almost unused and half a page are found', async () => {
  const flipped = Buffer.concat([page(1, 0), page(2, 1)]);
  flipped[PAGE_BYTES + 5000] = (flipped[PAGE_BYTES + 5000] ?? 0) ^ 1;
  await expect(checkFile(flipped)).rejects.toThrow('page 1 of base/5/16384 is damaged');
  await expect(checkFile(page(1, 7))).rejects.toThrow('page 0 of base/5/16384 is damaged');
  const unused = Buffer.alloc(PAGE_BYTES);
  unused[4000] = 1;
  await expect(checkFile(unused)).rejects.toThrow('is damaged');
  await expect(checkFile(page(1, 0).subarray(0, 5000))).rejects.toThrow(
    'base/5/16384 ends in the middle of page 0',
  );
});
