/** WAL files as PostgreSQL writes them, for unit tests. */

export const PAGE = 8192;
const MANAGER_OF_TRANSACTIONS = 1;
export const MANAGER_OF_HEAPS = 10;
export const COMMIT = 0x00;
export const ABORT = 0x20;
export const COMMIT_PREPARED = 0x30;
/** Microseconds since 2000, as PostgreSQL counts, of a moment with 3 or 6 digits of a second. */
const micros = (iso: string): bigint =>
  BigInt(Date.parse(iso) - Date.UTC(2000, 0, 1)) * 1000n +
  BigInt(/\.\d{3}(\d{3})Z$/.exec(iso)?.[1] ?? '0');

/** A WAL record: its header, the headers of its data, and its data. */
export function record(
  manager: number,
  info: number,
  data: Buffer,
  before: readonly number[] = [],
): Buffer {
  const prefix =
    data.length < 256
      ? Buffer.from([...before, 255, data.length])
      : Buffer.from([...before, 254, 0, 0, 0, 0]);
  if (data.length >= 256) prefix.writeUInt32LE(data.length, before.length + 1);
  const header = Buffer.alloc(24);
  header.writeUInt32LE(24 + prefix.length + data.length, 0);
  header.writeUInt8(info, 16);
  header.writeUInt8(manager, 17);
  return Buffer.concat([header, prefix, data]);
}

export function commitAt(
  iso: string,
  info = COMMIT,
  more = 0,
  before: readonly number[] = [],
): Buffer {
  const data = Buffer.alloc(8 + more);
  data.writeBigInt64LE(micros(iso));
  return record(MANAGER_OF_TRANSACTIONS, info, data, before);
}

/**
 * A file of so many pages that holds these records; `rest` is of one that began in the file before.
 */
export function walFile(records: readonly Buffer[], pages = 4, rest = 0): Buffer {
  const aligned = [Buffer.alloc(rest, 7), ...records].map((one) =>
    Buffer.concat([one, Buffer.alloc(-one.length & 7)]),
  );
  const log = Buffer.concat(aligned);
  const all = [rest, ...records.map(({ length }) => length)];
  const made = Buffer.alloc(pages * PAGE);
  let written = 0;
  for (let page = 0; page < pages; page++) {
    const header = page === 0 ? 40 : 24;
    made.writeUInt32LE(page === 0 ? rest : restAt(written, all), page * PAGE + 16);
    log.subarray(written, written + PAGE - header).copy(made, page * PAGE + header);
    written += PAGE - header;
  }
  return made;
}

/** How much of a record is after a byte within it. @param lengths of all records */
function restAt(offset: number, lengths: readonly number[]): number {
  let begin = 0;
  for (const length of lengths) {
    if (begin < offset && offset < begin + length) return begin + length - offset;
    begin += Math.ceil(length / 8) * 8;
  }
  return 0;
}

/**
 * Gives each page its position, as a server does in its file of this number. Pages from `pages`
 * on are those of the file before, which was recycled.
 */
export function placed(contents: Buffer, file: number, pages = Infinity): Buffer {
  for (let page = 0; page * PAGE < contents.length; page++)
    contents.writeBigUInt64LE(
      BigInt((page < pages ? file : file - 1) * 16 * 1024 ** 2 + page * PAGE),
      page * PAGE + 8,
    );
  return contents;
}
