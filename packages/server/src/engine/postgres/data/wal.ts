/**
 * The write-ahead log as it lies on the disk: positions in it, where it ends, what a file of it
 * holds.
 */
import { join } from 'node:path';
import { readControl } from './identity.ts';
import { noneOf } from '../../../lib/processes.ts';
import { listEntries, openFile } from '../../../lib/untrusted-files.ts';

/** A position as PostgreSQL prints it, "16/B374D848", as bytes since the begin. */
export function parseLsn(text: string): bigint {
  const [high = '0', low = '0'] = text.split('/');
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}

export function formatLsn(bytes: bigint): string {
  return `${(bytes >> 32n).toString(16)}/${(bytes & 0xffffffffn).toString(16)}`.toUpperCase();
}

const PAGE_BYTES = 8192n;
const SEGMENT_BYTES = 16n * 1024n * 1024n;
/**
 * Offset of the page's own position in its header, and the header's length
 * (src/include/access/xlog_internal.h).
 */
const PAGE_POSITION_OFFSET = 8;

/** The newest timeline of which there is WAL; 0: none. */
export async function newestTimeline(data: string): Promise<number> {
  const files = (await listEntries(join(data, 'pg_wal'))).filter((name) =>
    /^[0-9A-F]{24}$/.test(name),
  );
  return Math.max(0, ...files.map((name) => Number.parseInt(name.slice(0, 8), 16)));
}

const CHECKPOINT_OFFSET = 32;

/**
 * Where the last checkpoint of a server begins: its shutdown, when it was stopped in order.
 * PostgreSQL source: src/include/catalog/pg_control.h, the same since 9.
 */
export async function lastCheckpoint(data: string): Promise<bigint> {
  return (await readControl(data)).readBigUInt64LE(CHECKPOINT_OFFSET);
}

/**
 * The end of the WAL of a server that does not run, found by reading its pages from a position on.
 * Each page has its own position, which distinguishes new pages from the rest of a recycled file.
 * If the file of the position is gone, a checkpoint has removed it: then the last checkpoint is
 * later.
 *
 * @param limitBytes how far to read
 */
export async function endOfWal(
  data: string,
  timeline: number,
  from: bigint,
  limitBytes: bigint,
): Promise<bigint> {
  const checkpoint = await lastCheckpoint(data);
  let end = checkpoint > from ? checkpoint : from;
  for (let page = (from / PAGE_BYTES) * PAGE_BYTES; page <= from + limitBytes; page += PAGE_BYTES) {
    const contents = await readPage(
      join(data, 'pg_wal', walFileName(timeline, page)),
      page % SEGMENT_BYTES,
    );
    if (contents === null || contents.readBigUInt64LE(PAGE_POSITION_OFFSET) !== page) return end;
    const used = BigInt(contents.findLastIndex((byte) => byte !== 0) + 1);
    if (page + used > end) end = page + used;
  }
  return end;
}

/**
 * Header of a WAL page, of the first page of a file, and of a record
 * (src/include/access/xlog_internal.h, xlogrecord.h).
 */
const [PAGE_HEADER_BYTES, FILE_HEADER_BYTES, RECORD_HEADER_BYTES] = [24n, 40n, 24];

/** Where a WAL record ends, by the length that it begins with; null: there is no record. */
export async function endOfRecord(
  data: string,
  timeline: number,
  begin: bigint,
): Promise<bigint | null> {
  const page = (begin / PAGE_BYTES) * PAGE_BYTES;
  const contents = await readPage(
    join(data, 'pg_wal', walFileName(timeline, page)),
    page % SEGMENT_BYTES,
  );
  if (contents === null || contents.readBigUInt64LE(PAGE_POSITION_OFFSET) !== page) return null;
  const lengthBytes = contents.readUInt32LE(Number(begin - page));
  if (lengthBytes < RECORD_HEADER_BYTES) return null;
  let position = begin;
  for (let left = BigInt(lengthBytes); ;) {
    const onPage = PAGE_BYTES - (position % PAGE_BYTES);
    if (left <= onPage) return position + left;
    left -= onPage;
    position += onPage;
    position += position % SEGMENT_BYTES === 0n ? FILE_HEADER_BYTES : PAGE_HEADER_BYTES;
  }
}

/**
 * A page of a WAL file; null: it is missing or incomplete. A page that cannot be read is an error:
 * the end of the WAL is then unknown.
 */
async function readPage(path: string, offset: bigint): Promise<Buffer | null> {
  const file = await openFile(path).catch(noneOf('ENOENT'));
  if (file === null) return null;
  try {
    const page = Buffer.alloc(Number(PAGE_BYTES));
    const { bytesRead } = await file.read(page, 0, page.length, Number(offset));
    return bytesRead === page.length ? page : null;
  } finally {
    await file.close();
  }
}

/**
 * The WAL file that holds a position: timeline, then 8 digits of 4 GB, then the file of 16 MB in
 * them.
 */
export function walFileName(timeline: number, position: bigint): string {
  const hex = (value: bigint | number): string => value.toString(16).toUpperCase().padStart(8, '0');
  return `${hex(timeline)}${hex(position >> 32n)}${hex((position & 0xffffffffn) / SEGMENT_BYTES)}`;
}

// ── what a file holds
// ────────────────────────────────────────────────────────────────────────────────────────────

/**
 * In the header of a page: what it is, and how much of a record of the page before it comes first.
 */
const [PAGE_INFO_OFFSET, CONTINUED_OFFSET] = [2, 16];
/** The page begins again: after a crash in the middle of a record, which has no end. */
const AFTER_BROKEN_RECORD = 0x8;
/** In the header of a record: the operation, and its resource manager. */
const [INFO_OFFSET, MANAGER_OFFSET] = [16, 17];
/**
 * The resource manager of transactions: src/include/access/rmgrlist.h; records of it:
 * src/include/access/xact.h.
 */
const [TRANSACTIONS, KIND_MASK, COMMIT, COMMIT_PREPARED] = [1, 0x70, 0x00, 0x30];
/**
 * Headers that may precede a record's data, by their first byte: their length, or that of the
 * data's length (xlogrecord.h).
 */
const [DATA_SHORT, DATA_LONG, ORIGIN, TOP_TRANSACTION] = [255, 254, 253, 252];
/** PostgreSQL counts from 2000-01-01. */
const EPOCH_MS = Date.UTC(2000, 0, 1);

/**
 * The time of the last commit in a WAL file, by the server's clock, in ms since the epoch, rounded
 * up; null: there is none. A record that begins or ends in another file is skipped.
 *
 * @param contents the whole file
 */
export function lastCommitMs(contents: Buffer): number | null {
  let latest: number | null = null;
  for (const ms of commitTimes(contents)) if (latest === null || ms > latest) latest = ms;
  return latest;
}

/**
 * The time of the first commit in a WAL file, as {@link lastCommitMs}. The file may be one that the
 * server writes: the rest of a recycled one does not count.
 *
 * @param name of the file
 * @param afterMs earlier commits do not count
 */
export function firstCommitMs(contents: Buffer, name: string, afterMs = 0): number | null {
  for (const ms of commitTimes(writtenPart(contents, name))) if (ms > afterMs) return ms;
  return null;
}

/** Whether a WAL file begins in the middle of a record. */
export function beginsInRecord(contents: Buffer): boolean {
  return contents.length >= FILE_HEADER_BYTES && contents.readUInt32LE(CONTINUED_OFFSET) > 0;
}

/** The pages of a file that belong to it: a recycled one has those of an older file after them. */
function writtenPart(contents: Buffer, name: string): Buffer {
  const pageBytes = Number(PAGE_BYTES);
  const begin =
    (BigInt(`0x${name.slice(8, 16)}`) << 32n) + BigInt(`0x${name.slice(16)}`) * SEGMENT_BYTES;
  let end = 0;
  while (
    end + pageBytes <= contents.length &&
    contents.readBigUInt64LE(end + PAGE_POSITION_OFFSET) === begin + BigInt(end)
  )
    end += pageBytes;
  return contents.subarray(0, end);
}

function* commitTimes(contents: Buffer): Generator<number> {
  for (const { log, begin } of piecesOf(contents)) {
    for (let at = begin; at + RECORD_HEADER_BYTES <= log.length;) {
      const lengthBytes = log.readUInt32LE(at);
      // The rest of a file that was left early is zeros.
      if (lengthBytes < RECORD_HEADER_BYTES || at + lengthBytes > log.length) break;
      const ms = isCommit(log, at)
        ? commitMs(log.subarray(at + RECORD_HEADER_BYTES, at + lengthBytes))
        : null;
      if (ms !== null) yield ms;
      at += Math.ceil(lengthBytes / 8) * 8;
    }
  }
}

/**
 * The WAL of a file without the headers of its pages, and where its first complete record begins.
 */
function piecesOf(contents: Buffer): { log: Buffer; begin: number }[] {
  const pieces: { pages: Buffer[]; begin: number }[] = [];
  for (let at = 0; at + Number(PAGE_BYTES) <= contents.length; at += Number(PAGE_BYTES)) {
    const first = at === 0;
    if (first || (contents.readUInt16LE(at + PAGE_INFO_OFFSET) & AFTER_BROKEN_RECORD) !== 0)
      pieces.push({
        pages: [],
        begin: Math.ceil(contents.readUInt32LE(at + CONTINUED_OFFSET) / 8) * 8,
      });
    pieces
      .at(-1)
      ?.pages.push(
        contents.subarray(
          at + Number(first ? FILE_HEADER_BYTES : PAGE_HEADER_BYTES),
          at + Number(PAGE_BYTES),
        ),
      );
  }
  return pieces.map(({ pages, begin }) => ({ log: Buffer.concat(pages), begin }));
}

function isCommit(log: Buffer, at: number): boolean {
  const kind = log.readUInt8(at + INFO_OFFSET) & KIND_MASK;
  return (
    log.readUInt8(at + MANAGER_OFFSET) === TRANSACTIONS &&
    (kind === COMMIT || kind === COMMIT_PREPARED)
  );
}

/**
 * When a transaction committed, by the data after the header of its record; null: it is no commit.
 */
function commitMs(contents: Buffer): number | null {
  for (let at = 0; at < contents.length;) {
    switch (contents.readUInt8(at)) {
      case ORIGIN:
        at += 3;
        continue;
      case TOP_TRANSACTION:
        at += 5;
        continue;
      case DATA_SHORT:
        return timeAt(contents, at + 2);
      case DATA_LONG:
        return timeAt(contents, at + 5);
      default:
        return null;
    }
  }
  return null;
}

function timeAt(contents: Buffer, offset: number): number | null {
  return offset + 8 > contents.length
    ? null
    : EPOCH_MS + Math.ceil(Number(contents.readBigInt64LE(offset)) / 1000);
}
