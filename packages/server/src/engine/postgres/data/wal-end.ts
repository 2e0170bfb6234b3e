/**
 * How the WAL of a stopped source ends in its copy. A server that is shut down in order writes one
 * last record, its shutdown checkpoint, and sends it to its standbys before it ends.
 *
 * All of it is input. The bytes after the end may be those of an older file, so each record is
 * checked as PostgreSQL does (src/backend/access/transam/xlogreader.c): by its checksum, and by the
 * position of the record before it.
 */
import { join } from 'node:path';
import { crc32c } from './identity.ts';
import { openFile, listEntries } from '../../../lib/untrusted-files.ts';
import {
  isWalFile,
  holdsItsName,
  nextWalFile,
  positionOfWalFile,
  WAL_FILE_BYTES,
} from './wal-files.ts';

const PAGE_BYTES = 8192n;
const SEGMENT_BYTES = BigInt(WAL_FILE_BYTES);
/** Headers of pages and records: src/include/access/xlog_internal.h, xlogrecord.h. */
const [PAGE_HEADER_BYTES, FILE_HEADER_BYTES] = [24n, 40n];
const [PAGE_INFO, PAGE_POSITION, PAGE_CONTINUED] = [2, 8, 16];
/** The page follows a record that was never completed, since its server died. */
const AFTER_BROKEN_RECORD = 0x8;
const RECORD_HEADER_BYTES = 24;
const [RECORD_PREVIOUS, RECORD_INFO, RECORD_MANAGER, RECORD_CHECKSUM] = [8, 16, 17, 20];
/** Records of the WAL itself: src/include/catalog/pg_control.h. */
const [OF_WAL, KIND_MASK, CHECKPOINT_SHUTDOWN, SWITCH] = [0, 0xf0, 0x00, 0x40];

/** A record: where it begins, where it ends, and what it is. */
export type WalRecord = Readonly<{ begin: bigint; end: bigint; manager: number; info: number }>;

/** The pages before the last one that are read for it: they mostly hold the record before. */
const PAGES_BEFORE = 2n;

/**
 * The last record of some WAL.
 *
 * @param contents whole files, one after the other
 * @param base the position at which the first of them begins
 * @returns null: no record begins and ends in them
 */
export function lastRecordIn(contents: Buffer, base: bigint): WalRecord | null {
  let end = base;
  while (isPageOf(contents, base, end)) end += PAGE_BYTES;
  const near = end - (PAGES_BEFORE + 1n) * PAGE_BYTES;
  const found = near > base ? scan(contents, base, near) : null;
  // The first record from there on has not been compared with the one before it.
  return found?.isLinked === true ? found.last : (scan(contents, base, base)?.last ?? null);
}

/**
 * @param page where to begin
 * @returns the last record, and whether the one before it was read too; null: there is none
 */
function scan(
  contents: Buffer,
  base: bigint,
  page: bigint,
): { last: WalRecord; isLinked: boolean } | null {
  let found: { last: WalRecord; isLinked: boolean } | null = null;
  let position = firstRecordIn(contents, base, page);
  let previous: bigint | null = null;
  while (position !== null) {
    const record = recordAt(contents, base, position, previous);
    if (record === null) {
      position = afterBrokenRecord(contents, base, position);
      previous = null;
      continue;
    }
    found = { last: record, isLinked: previous !== null };
    previous = record.begin;
    position = followingOf(record);
  }
  return found;
}

export const isShutdown = ({ manager, info }: WalRecord): boolean =>
  manager === OF_WAL && (info & KIND_MASK) === CHECKPOINT_SHUTDOWN;

/** A switch leaves the rest of its file. */
const followingOf = ({ end, manager, info }: WalRecord): bigint =>
  manager === OF_WAL && (info & KIND_MASK) === SWITCH
    ? roundUp(end, SEGMENT_BYTES)
    : roundUp(end, 8n);

const roundUp = (value: bigint, to: bigint): bigint => ((value + to - 1n) / to) * to;

/** Where the first record begins that is not continued from the page before; null: nowhere. */
function firstRecordIn(contents: Buffer, base: bigint, page: bigint): bigint | null {
  if (!isPageOf(contents, base, page)) return null;
  const continued = contents.readUInt32LE(Number(page - base) + PAGE_CONTINUED);
  const begin = skipHeader(page);
  const rest = take(contents, base, begin, continued);
  return rest === null ? null : roundUp(rest.end, 8n);
}

/** The page after a record without an end; null: nothing follows. */
function afterBrokenRecord(contents: Buffer, base: bigint, from: bigint): bigint | null {
  for (
    let page = (from / PAGE_BYTES + 1n) * PAGE_BYTES;
    isPageOf(contents, base, page);
    page += PAGE_BYTES
  ) {
    const info = contents.readUInt16LE(Number(page - base) + PAGE_INFO);
    if ((info & AFTER_BROKEN_RECORD) !== 0) return firstRecordIn(contents, base, page);
  }
  return null;
}

function recordAt(
  contents: Buffer,
  base: bigint,
  position: bigint,
  previous: bigint | null,
): WalRecord | null {
  if (position % PAGE_BYTES === 0n && !isPageOf(contents, base, position)) return null;
  const begin = skipHeader(position);
  const length = take(contents, base, begin, 4)?.bytes.readUInt32LE(0) ?? 0;
  if (length < RECORD_HEADER_BYTES) return null;
  const found = take(contents, base, begin, length);
  if (found === null) return null;
  const { bytes, end } = found;
  const checked = [bytes.subarray(RECORD_HEADER_BYTES), bytes.subarray(0, RECORD_CHECKSUM)];
  if (crc32c(Buffer.concat(checked)) !== bytes.readUInt32LE(RECORD_CHECKSUM)) return null;
  if (previous !== null && bytes.readBigUInt64LE(RECORD_PREVIOUS) !== previous) return null;
  return {
    begin,
    end,
    manager: bytes.readUInt8(RECORD_MANAGER),
    info: bytes.readUInt8(RECORD_INFO),
  };
}

/** Bytes of WAL without the headers of pages; null: they are not all there. */
function take(
  contents: Buffer,
  base: bigint,
  begin: bigint,
  length: number,
): { bytes: Buffer; end: bigint } | null {
  const pieces: Buffer[] = [];
  let at = begin;
  for (let left = length; left > 0;) {
    if (at % PAGE_BYTES === 0n) {
      if (!isPageOf(contents, base, at)) return null;
      at = skipHeader(at);
    }
    const offset = Number(at - base);
    const onPage = Math.min(left, Number(PAGE_BYTES - (at % PAGE_BYTES)));
    if (offset + onPage > contents.length) return null;
    pieces.push(contents.subarray(offset, offset + onPage));
    left -= onPage;
    at += BigInt(onPage);
  }
  return { bytes: pieces.length === 1 ? (pieces[0] ?? EMPTY) : Buffer.concat(pieces), end: at };
}
const EMPTY = Buffer.alloc(0);

function isPageOf(contents: Buffer, base: bigint, page: bigint): boolean {
  const offset = Number(page - base);
  return (
    offset >= 0 &&
    offset + Number(PAGE_BYTES) <= contents.length &&
    contents.readBigUInt64LE(offset + PAGE_POSITION) === page
  );
}

/** The first byte of a page that is not of its header. */
function skipHeader(position: bigint): bigint {
  if (position % PAGE_BYTES !== 0n) return position;
  return position + (position % SEGMENT_BYTES === 0n ? FILE_HEADER_BYTES : PAGE_HEADER_BYTES);
}

/**
 * The position of the shutdown by which the WAL of a copy ends, flushed to the disk; null: it ends
 * with another record.
 */
export async function findShutdown(data: string): Promise<bigint | null> {
  const directory = join(data, 'pg_wal');
  const names = (await listEntries(directory)).filter(isWalFile).toSorted().toReversed();
  for (const name of names) {
    // Files after the end have been recycled.
    if (!(await holdsItsName(join(directory, name), name))) continue;
    const contents = await readFlushed(join(directory, name));
    const base = positionOfWalFile(name);
    const last =
      lastRecordIn(contents, base) ?? (await lastOfTwo(directory, names, name, contents));
    return last !== null && isShutdown(last) ? last.begin : null;
  }
  return null;
}

/** The last record of a file that holds no more than the end of one that began in another. */
async function lastOfTwo(
  directory: string,
  names: readonly string[],
  name: string,
  contents: Buffer,
): Promise<WalRecord | null> {
  const before = names.find((one) => nextWalFile(one) === name);
  if (before === undefined) return null;
  const both = [await readFlushed(join(directory, before)), contents];
  return lastRecordIn(Buffer.concat(both), positionOfWalFile(before));
}

/** @throws Error when it has another size than WAL files of ours */
async function readFlushed(path: string): Promise<Buffer> {
  const file = await openFile(path);
  try {
    const { size } = await file.stat();
    if (size !== WAL_FILE_BYTES) throw new Error(`a WAL file has ${size} bytes`);
    await file.sync();
    const contents = Buffer.alloc(size);
    await file.read(contents, 0, size, 0);
    return contents;
  } finally {
    await file.close();
  }
}
