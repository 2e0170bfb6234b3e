import { expect, test } from 'vitest';
import { crc32c } from './identity.ts';
import { isShutdown, lastRecordIn } from './wal-end.ts';
import { MANAGER_OF_HEAPS, PAGE, placed, record, walFile } from './wal.testing.ts';

const FILE = 16 * 1024 ** 2;
const BASE = BigInt(FILE);
const [OF_WAL, CHECKPOINT_SHUTDOWN, SWITCH] = [0, 0x00, 0x40];

const heap = (bytes = 100): Buffer => record(MANAGER_OF_HEAPS, 0, Buffer.alloc(bytes, 1));
const shutdown = (): Buffer => record(OF_WAL, CHECKPOINT_SHUTDOWN, Buffer.alloc(88, 2));

/** The position of a byte of a file without the headers of pages. */
function positionOf(offset: number): bigint {
  if (offset < PAGE - 40) return BASE + 40n + BigInt(offset);
  const rest = offset - (PAGE - 40);
  const page = 1 + Math.floor(rest / (PAGE - 24));
  return BASE + BigInt(page * PAGE + 24 + (rest % (PAGE - 24)));
}

/** Gives each record the position of the one before it, and its checksum. */
function linked(records: readonly Buffer[], first = 0n): Buffer[] {
  let [offset, previous] = [0, first];
  return records.map((one) => {
    const made = Buffer.from(one);
    made.writeBigUInt64LE(previous, 8);
    made.writeUInt32LE(crc32c(Buffer.concat([made.subarray(24), made.subarray(0, 20)])), 20);
    previous = positionOf(offset);
    offset += Math.ceil(made.length / 8) * 8;
    return made;
  });
}

/** A file whose pages after these records are those of an older one. */
const written = (records: readonly Buffer[], pages: number): Buffer => {
  const bytes = records.reduce((sum, { length }) => sum + Math.ceil(length / 8) * 8, 0);
  return placed(walFile(records, pages), 1, Math.ceil((bytes + 16) / (PAGE - 24)));
};
const fileOf = (records: readonly Buffer[], pages = 4): Buffer => written(linked(records), pages);
const endsWithShutdown = (contents: Buffer): boolean => {
  const last = lastRecordIn(contents, BASE);
  return last !== null && isShutdown(last);
};

test('WAL whose last record is the shutdown of its server ends with it', () => {
  expect(endsWithShutdown(fileOf([heap(), heap(), shutdown()]))).toBe(true);
  expect(lastRecordIn(fileOf([shutdown()]), BASE)).toMatchObject({ begin: BASE + 40n });
  // Across pages, the record itself too.
  expect(endsWithShutdown(fileOf([heap(20_000), shutdown()]))).toBe(true);
  expect(endsWithShutdown(fileOf([heap(PAGE - 40 - 24 - 6 - 56), shutdown()]))).toBe(true);
  // After many pages, the last ones of which hold one record only.
  const many = Array.from({ length: 300 }, () => heap(1000));
  expect(endsWithShutdown(fileOf([...many, shutdown()], 60))).toBe(true);
  expect(endsWithShutdown(fileOf([...many, heap(60_000), shutdown()], 60))).toBe(true);
  expect(endsWithShutdown(fileOf([...many, shutdown(), heap(60_000)], 60))).toBe(false);
});

test('WAL that goes on after a shutdown does not end with it', () => {
  expect(endsWithShutdown(fileOf([shutdown(), heap()]))).toBe(false);
  expect(endsWithShutdown(fileOf([heap()]))).toBe(false);
  expect(lastRecordIn(fileOf([]), BASE)).toBeNull();
});

test('a record that was received in part, or is damaged, does not count', () => {
  const [first, last] = linked([heap(), shutdown()]);
  if (first === undefined || last === undefined) throw new Error('there are two');
  const cut = placed(walFile([first, Buffer.concat([last.subarray(0, 60), Buffer.alloc(56)])]), 1);
  expect(endsWithShutdown(cut)).toBe(false);
  const damaged = Buffer.from(last);
  damaged.writeUInt8(9, 40);
  expect(endsWithShutdown(placed(walFile([first, damaged]), 1))).toBe(false);
});

test('the rest of an older file does not count', () => {
  // On the same page: a shutdown of then, whole, after another record.
  const [first] = linked([heap()]);
  const [, , old] = linked([heap(), heap(), shutdown()]);
  if (first === undefined || old === undefined) throw new Error('there are two');
  expect(endsWithShutdown(placed(walFile([first, old]), 1))).toBe(false);
  // On a page that has the position of then.
  const [long, last] = linked([heap(PAGE - 40 - 24 - 2 - 5), shutdown()]);
  if (long === undefined || last === undefined) throw new Error('there are two');
  expect(endsWithShutdown(placed(walFile([long, last]), 1))).toBe(true);
  expect(endsWithShutdown(placed(walFile([long, last]), 1, 1))).toBe(false);
});

test('a record that nothing links to the ones before does not count', () => {
  const long = [...Array.from({ length: 300 }, () => heap(1000)), heap(60_000)];
  const [, , old] = linked([heap(), heap(), shutdown()]);
  if (old === undefined) throw new Error('there are three');
  expect(endsWithShutdown(written([...linked(long), old], 60))).toBe(false);
});

test('a shutdown in the file after a switch, and after a record that was never completed', () => {
  const full = FILE / PAGE;
  const before = placed(
    walFile(linked([heap(), record(OF_WAL, SWITCH, Buffer.alloc(0))]), full),
    1,
  );
  const [alone] = linked([shutdown()], lastRecordIn(before, BASE)?.begin);
  if (alone === undefined) throw new Error('there is one');
  const after = placed(walFile([alone]), 2);
  expect(endsWithShutdown(Buffer.concat([before, after]))).toBe(true);
  const broken = placed(walFile([...linked([heap()]), heap(20_000).fill(0, 100)]), 1);
  broken.fill(0, PAGE + 24);
  broken.writeUInt16LE(0x8, PAGE + 2);
  broken.writeUInt32LE(0, PAGE + 16);
  alone.copy(broken, PAGE + 24);
  expect(endsWithShutdown(broken)).toBe(true);
});
