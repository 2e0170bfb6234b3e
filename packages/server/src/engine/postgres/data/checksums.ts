/**
 * The checksums of a stopped cluster's pages, checked as `pg_checksums --check` does, which not
 * every installation brings. PostgreSQL source: src/include/storage/checksum_impl.h,
 * src/bin/pg_checksums/pg_checksums.c.
 */
import { join } from 'node:path';
import { listEntries, openFile } from '../../../lib/untrusted-files.ts';

export const PAGE_BYTES = 8192;
/** A relation of more than 1 GB is cut into files of so many pages. */
const PAGES_PER_FILE = 131_072;
/** Pages read at a time: others get their turn after a fraction of a millisecond. */
const PAGES_PER_READ = 32;
const FNV_PRIME = 16_777_619;
const CHECKSUM_OFFSET = 8;
/** The end of free space: zero in a page that was never used, as all of it is then. */
const UPPER_OFFSET = 14;
const NEVER_USED = Buffer.alloc(PAGE_BYTES);

// prettier-ignore
const BASE_OFFSETS = [
  0x5b1f36e9, 0xb8525960, 0x02ab50aa, 0x1de66d2a, 0x79ff467a, 0x9bb9f8a3, 0x217e7cd2, 0x83e13d2c,
  0xf8d4474f, 0xe39eb970, 0x42c6ae16, 0x993216fa, 0x7b093b5d, 0x98daff3c, 0xf718902a, 0x0b1c9cdb,
  0xe58f764b, 0x187636bc, 0x5d7b3bb1, 0xe73de7de, 0x92bec979, 0xcca6c0b2, 0x304a0979, 0x85aa43d4,
  0x783125bb, 0x6ca8eaa2, 0xe407eac6, 0x4b5cfc3e, 0x9fbf8c76, 0x15ca20be, 0xf2ca9fd3, 0x959bd756,
];
const LANES = BASE_OFFSETS.length;

const sums = new Int32Array(LANES);

/** The checksum that a page should carry. @param block its number in its relation */
export function pageChecksum(page: Buffer, block: number): number {
  const words = new DataView(page.buffer, page.byteOffset, PAGE_BYTES);
  sums.set(BASE_OFFSETS);
  for (let offset = 0; offset < PAGE_BYTES; offset += 4) {
    // The checksum itself counts as zero.
    const word =
      offset === CHECKSUM_OFFSET
        ? words.getInt32(offset, true) & ~0xffff
        : words.getInt32(offset, true);
    mix((offset / 4) % LANES, word);
  }
  for (let index = 0; index < 2 * LANES; index++) mix(index % LANES, 0);
  const folded = sums.reduce((result, sum) => result ^ sum, block);
  return ((folded >>> 0) % 65_535) + 1;
}

/** One step of FNV-1a, with a shift that carries high bits down. */
function mix(lane: number, word: number): void {
  const mixed = (sums[lane] ?? 0) ^ word;
  sums[lane] = Math.imul(mixed, FNV_PRIME) ^ (mixed >>> 17);
}

/**
 * Checks every page of a cluster that is shut down.
 *
 * @returns how many there are
 * @throws Error naming the first page that is not as it was written
 */
export async function checkPages(
  dataDirectory: string,
  signal: AbortSignal,
): Promise<{ files: number; pages: number }> {
  let [files, pages] = [0, 0];
  for (const directory of ['global', ...(await databaseDirectories(dataDirectory))]) {
    for (const name of (await listEntries(join(dataDirectory, directory))).filter(isRelationFile)) {
      signal.throwIfAborted();
      pages += await checkFile(dataDirectory, `${directory}/${name}`, signal);
      files += 1;
    }
  }
  return { files, pages };
}

async function databaseDirectories(dataDirectory: string): Promise<string[]> {
  return (await listEntries(join(dataDirectory, 'base')))
    .filter((name) => /^\d+$/.test(name))
    .map((name) => `base/${name}`);
}

/** A file of a relation: its number, perhaps a fork of it, perhaps a further part. */
function isRelationFile(name: string): boolean {
  return /^\d+(_(fsm|vm|init))?(\.\d+)?$/.test(name);
}

async function checkFile(
  dataDirectory: string,
  path: string,
  signal: AbortSignal,
): Promise<number> {
  const firstBlock = Number(/\.(\d+)$/.exec(path)?.[1] ?? 0) * PAGES_PER_FILE;
  const file = await openFile(join(dataDirectory, path));
  try {
    const buffer = Buffer.alloc(PAGES_PER_READ * PAGE_BYTES);
    for (let pages = 0; ;) {
      signal.throwIfAborted();
      const { bytesRead } = await file.read(buffer, 0, buffer.length, pages * PAGE_BYTES);
      if (bytesRead === 0) return pages;
      if (bytesRead % PAGE_BYTES !== 0)
        throw new Error(
          `${path} ends in the middle of page ${pages + Math.floor(bytesRead / PAGE_BYTES)}`,
        );
      for (let offset = 0; offset < bytesRead; offset += PAGE_BYTES, pages++) {
        checkPage(path, buffer.subarray(offset, offset + PAGE_BYTES), firstBlock + pages);
      }
    }
  } finally {
    await file.close();
  }
}

function checkPage(path: string, page: Buffer, block: number): void {
  if (page.readUInt16LE(UPPER_OFFSET) === 0 && page.equals(NEVER_USED)) return;
  const [found, reckoned] = [page.readUInt16LE(CHECKSUM_OFFSET), pageChecksum(page, block)];
  if (found !== reckoned)
    throw new Error(
      `page ${block} of ${path} is damaged: found checksum ${found}, expected ${reckoned}`,
    );
}
