import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  crc32c,
  findCrcOffset,
  readShutdown,
  wasShutDown,
  writeSystemIdentifier,
} from './identity.ts';

/** RFC 3720 appendix B.4, and the check value of the catalogue of CRCs. */
const VECTORS: [string, Uint8Array, number][] = [
  ['nothing', Buffer.alloc(0), 0],
  ['123456789', Buffer.from('123456789'), 0xe3069283],
  ['32 bytes of zeroes', Buffer.alloc(32), 0x8a9136aa],
  ['32 bytes of ones', Buffer.alloc(32, 0xff), 0x62a8ab43],
  ['32 bytes counting up', Uint8Array.from({ length: 32 }, (_, index) => index), 0x46dd794e],
  ['32 bytes counting down', Uint8Array.from({ length: 32 }, (_, index) => 31 - index), 0x113fdb5c],
];
test.each(VECTORS)('CRC-32C of %s', (_title, bytes, expected) => {
  expect(crc32c(bytes)).toBe(expected);
});

/** Contents as PostgreSQL writes them: its structure, the checksum of it, zeroes. */
function control(bytes: Uint8Array): Buffer {
  const contents = Buffer.alloc(512);
  contents.set(bytes);
  contents.writeUInt32LE(crc32c(bytes), bytes.length);
  return contents;
}

test('the checksum is found wherever a major keeps it', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 50, max: 127 }),
      fc.uint8Array({ minLength: 508, maxLength: 508 }),
      (words, bytes) => {
        expect(findCrcOffset(control(bytes.subarray(0, words * 4)))).toBe(words * 4);
      },
    ),
  );
});

test('where none fits, none is found', () => {
  expect(findCrcOffset(Buffer.alloc(512))).toBeNull();
  const damaged = control(randomBytes(288));
  damaged.writeUInt8((damaged.readUInt8(100) + 1) % 256, 100);
  expect(findCrcOffset(damaged)).toBeNull();
});

test('a new identifier goes into the control file and all segments, nothing else', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'hd-identity-'));
  try {
    await mkdir(join(directory, 'global'));
    await mkdir(join(directory, 'pg_wal', 'archive_status'), { recursive: true });
    const before = Buffer.concat([control(randomBytes(296)), randomBytes(7680)]);
    const segment = randomBytes(20_000);
    const segments = ['000000010000000000000001', '0000000100000000000000AF'];
    await writeFile(join(directory, 'global', 'pg_control'), before);
    for (const name of [...segments, '00000002.history'])
      await writeFile(join(directory, 'pg_wal', name), segment);

    const begunMs = Date.now();
    const identifier = await writeSystemIdentifier(directory);
    expect(Number(identifier >> 32n)).toBeGreaterThanOrEqual(Math.floor(begunMs / 1000));
    const after = await readFile(join(directory, 'global', 'pg_control'));
    expect(after.readBigUInt64LE(0)).toBe(identifier);
    expect(after.readUInt32LE(296)).toBe(crc32c(after.subarray(0, 296)));
    expect(after.subarray(8, 296)).toEqual(before.subarray(8, 296));
    expect(after.subarray(300)).toEqual(before.subarray(300));
    for (const name of segments) {
      const written = await readFile(join(directory, 'pg_wal', name));
      expect(written.readBigUInt64LE(24)).toBe(identifier);
      expect(written.subarray(0, 24)).toEqual(segment.subarray(0, 24));
      expect(written.subarray(32)).toEqual(segment.subarray(32));
    }
    expect(await readFile(join(directory, 'pg_wal', '00000002.history'))).toEqual(segment);
    expect(await writeSystemIdentifier(directory)).not.toBe(identifier);
    expect(await writeSystemIdentifier(directory, 42n)).toBe(42n);
    expect((await readFile(join(directory, 'global', 'pg_control'))).readBigUInt64LE(0)).toBe(42n);

    await writeFile(join(directory, 'global', 'pg_control'), randomBytes(8192));
    await expect(writeSystemIdentifier(directory)).rejects.toThrow(/pg_control: no checksum/);
  } finally {
    await rm(directory, { recursive: true });
  }
});

/**
 * DBState of src/include/catalog/pg_control.h: all but these two flush every file when they start.
 */
test.each([
  ['starting up', 0, false],
  ['shut down', 1, true],
  ['shut down in recovery', 2, true],
  ['shutting down', 3, false],
  ['in crash recovery', 4, false],
  ['in archive recovery', 5, false],
  ['in production', 6, false],
])('a cluster that was %s', async (_title, state, expected) => {
  const directory = await mkdtemp(join(tmpdir(), 'hd-identity-'));
  try {
    await mkdir(join(directory, 'global'));
    const contents = control(randomBytes(296));
    contents.writeUInt32LE(state, 16);
    await writeFile(join(directory, 'global', 'pg_control'), contents);
    expect(await wasShutDown(directory)).toBe(expected);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test.each([
  ['a primary that was shut down', 1, 0x1_2345_6789n],
  ['a standby that was shut down', 2, null],
  ['a server that was killed', 6, null],
])('where the WAL ends of %s', async (_title, state, expected) => {
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  try {
    await mkdir(join(directory, 'global'));
    const contents = control(randomBytes(296));
    contents.writeUInt32LE(state, 16);
    contents.writeBigUInt64LE(0x1_2345_6789n, 32);
    await writeFile(join(directory, 'global', 'pg_control'), contents);
    expect(await readShutdown(directory)).toBe(expected);
  } finally {
    await rm(directory, { recursive: true });
  }
});
