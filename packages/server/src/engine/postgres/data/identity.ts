/**
 * Gives a cloned cluster a system identifier of its own. Without one, every clone of a template
 * would take every other's WAL for its own: the identifier is what keeps a standby or an archive
 * from mixing two services.
 *
 * The identifier stands in `global/pg_control` (first 8 bytes; the file's CRC-32C follows its
 * contents at an offset that differs between majors) and in the first page of each WAL segment
 * (offset 24 of the long page header). PostgreSQL sources: src/include/catalog/pg_control.h,
 * src/include/access/xlog_internal.h.
 */
import { randomBytes } from 'node:crypto';
import { basename, join } from 'node:path';
import { listEntries, openForEditing, readBytes } from '../../../lib/untrusted-files.ts';

const WAL_SYSTEM_IDENTIFIER_OFFSET = 24;
/** pg_control's contents end well below one disk sector, so that writing it is atomic. */
const CONTROL_CONTENTS_MAX_BYTES = 512;

/**
 * Writes a new system identifier into a cluster that is cleanly shut down and of which no server
 * runs.
 *
 * @returns the identifier, as `pg_control_system()` will show it
 * @throws Error when the control file is not one whose checksum this code can find
 */
export async function writeSystemIdentifier(
  dataDirectory: string,
  identifier = newIdentifier(Date.now()),
): Promise<bigint> {
  await edit(join(dataDirectory, 'global', 'pg_control'), CONTROL_CONTENTS_MAX_BYTES, (contents) =>
    rewriteControl(contents, identifier),
  );
  const wal = join(dataDirectory, 'pg_wal');
  for (const segment of (await listEntries(wal)).filter((name) => /^[0-9A-F]{24}$/.test(name))) {
    await edit(join(wal, segment), WAL_SYSTEM_IDENTIFIER_OFFSET + 8, (header) => {
      header.writeBigUInt64LE(identifier, WAL_SYSTEM_IDENTIFIER_OFFSET);
    });
  }
  return identifier;
}

const STATE_OFFSET = 16;
const [SHUT_DOWN, SHUT_DOWN_IN_RECOVERY] = [1, 2];

/**
 * Whether a cluster, of which no server runs, was shut down in order. If not, its server flushes
 * all of its files before it recovers.
 */
export async function wasShutDown(dataDirectory: string): Promise<boolean> {
  const state = (await readControl(dataDirectory)).readUInt32LE(STATE_OFFSET);
  return state === SHUT_DOWN || state === SHUT_DOWN_IN_RECOVERY;
}

const CHECKPOINT_OFFSET = 32;

/**
 * The position of the record that ends the WAL of a primary that was shut down in order; null: it
 * was not.
 */
export async function readShutdown(dataDirectory: string): Promise<bigint | null> {
  const control = await readControl(dataDirectory);
  return control.readUInt32LE(STATE_OFFSET) === SHUT_DOWN
    ? control.readBigUInt64LE(CHECKPOINT_OFFSET)
    : null;
}

/**
 * The last checkpoint that a standby had replayed when it was shut down in order; null: it was not.
 * If its WAL ends with that record, it has replayed all of it.
 */
export async function readStandbyShutdown(dataDirectory: string): Promise<bigint | null> {
  const control = await readControl(dataDirectory);
  return control.readUInt32LE(STATE_OFFSET) === SHUT_DOWN_IN_RECOVERY
    ? control.readBigUInt64LE(CHECKPOINT_OFFSET)
    : null;
}

const CONTROL_FILE_MAX_BYTES = 64 * 1024;

/** The control file of a cluster. @throws Error when it is too short to be one */
export async function readControl(dataDirectory: string): Promise<Buffer> {
  const contents = await readBytes(
    join(dataDirectory, 'global', 'pg_control'),
    CONTROL_FILE_MAX_BYTES,
  );
  if (contents.length < CONTROL_CONTENTS_MAX_BYTES)
    throw new Error(`pg_control has ${contents.length} bytes; is the file damaged?`);
  return contents;
}

/**
 * As PostgreSQL makes one: seconds and microseconds, and 12 random bits that distinguish clones of
 * one moment.
 */
function newIdentifier(nowMs: number): bigint {
  const seconds = BigInt(Math.floor(nowMs / 1000));
  const low = BigInt(randomBytes(4).readUInt32LE());
  return (seconds << 32n) | low;
}

function rewriteControl(contents: Buffer, identifier: bigint): void {
  const crcOffset = findCrcOffset(contents);
  if (crcOffset === null)
    throw new Error(
      'pg_control: no checksum found where PostgreSQL keeps it; is the file damaged?',
    );
  contents.writeBigUInt64LE(identifier, 0);
  contents.writeUInt32LE(crc32c(contents.subarray(0, crcOffset)), crcOffset);
}

/**
 * The offset at which a CRC-32C of everything before it stands; the structure grows between majors,
 * so it is looked for.
 */
export function findCrcOffset(contents: Buffer): number | null {
  let crc = 0xffffffff;
  for (let offset = 0; offset + 4 <= contents.length; offset += 4) {
    if (offset >= 200 && contents.readUInt32LE(offset) === (crc ^ 0xffffffff) >>> 0) return offset;
    for (const byte of contents.subarray(offset, offset + 4)) crc = step(crc, byte);
  }
  return null;
}

/** CRC-32C (Castagnoli), reflected, as in RFC 3720 appendix B.4. */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  // An iterator takes several times as long for files of WAL.
  for (let at = 0; at < bytes.length; at++) crc = step(crc, bytes[at] ?? 0);
  return (crc ^ 0xffffffff) >>> 0;
}

const TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

function step(crc: number, byte: number): number {
  return ((crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] ?? 0)) >>> 0;
}

async function edit(
  path: string,
  bytes: number,
  change: (contents: Buffer) => void,
): Promise<void> {
  const file = await openForEditing(path);
  try {
    const contents = Buffer.alloc(bytes);
    const { bytesRead } = await file.read(contents, 0, bytes, 0);
    if (bytesRead < bytes)
      throw new Error(`${basename(path)} has ${bytesRead} bytes; is the file damaged?`);
    change(contents);
    await file.write(contents, 0, bytes, 0);
  } finally {
    await file.close();
  }
}
