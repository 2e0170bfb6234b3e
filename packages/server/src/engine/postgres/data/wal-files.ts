/**
 * Names of WAL files, and the order in which they follow each other across timelines.
 */
import { join } from 'node:path';
import type { ServerFiles } from '../server-files.ts';
import { isErrno, noneOf } from '../../../lib/processes.ts';
import {
  copyInto,
  type FileOwner,
  listEntries,
  missingOrUnsafe,
  openFile,
  readTextIfSafe,
} from '../../../lib/untrusted-files.ts';
import { parseLsn, walFileName } from './wal.ts';

/** Where the WAL of a server is. */
type WalPlaces = Pick<ServerFiles, 'data' | 'archive'>;

/**
 * Copies WAL files of a running server into the data directory of its clone, from one to another.
 */
export async function copyWalFiles(
  owner: FileOwner | null,
  paths: WalPlaces,
  first: string,
  last: string,
  target: string,
): Promise<void> {
  // The names of WAL files come from the server, which may say anything; they become paths.
  if (!isWalFile(first) || !isWalFile(last)) throw new Error('the server named no WAL files');
  for (let wal = first; wal <= last; wal = nextWalFile(wal))
    await copyWal(owner, paths, wal, target);
}

/** A WAL file that is still in place, or has been archived meanwhile. */
async function copyWal(
  owner: FileOwner | null,
  paths: WalPlaces,
  wal: string,
  target: string,
): Promise<void> {
  const to = join(target, 'pg_wal', wal);
  try {
    await copyInto(join(paths.data, 'pg_wal', wal), to, owner);
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error;
    await copyInto(join(paths.archive, wal), to, owner);
  }
}

/**
 * Whether a file in place has been begun: one that was recycled has the contents of an older one
 * still.
 */
export async function holdsItsName(path: string, wal: string): Promise<boolean> {
  const file = await openFile(path).catch(noneOf('ENOENT'));
  if (file === null) return false;
  try {
    const { buffer } = await file.read(Buffer.alloc(16), 0, 16, 0);
    // xlp_pageaddr (PostgreSQL source: src/include/access/xlog_internal.h)
    return walFileName(0, buffer.readBigUInt64LE(8)).slice(8) === wal.slice(8);
  } finally {
    await file.close();
  }
}

export const isHistory = (name: string): boolean => /^[0-9A-F]{8}\.history$/.test(name);

export async function walFilesIn(directory: string): Promise<Set<string>> {
  return new Set((await entriesOf(directory)).filter(isWalFile));
}

/** The entries of a directory; none if it does not exist. */
export async function entriesOf(directory: string): Promise<string[]> {
  return (await listEntries(directory).catch(missingOrUnsafe)) ?? [];
}

export const WAL_FILE_BYTES = 16 * 1024 ** 2;

/**
 * Where each timeline before the newest ended: its number, as in the names of its files, and the
 * file in which the next one begins.
 */
type History = { timeline: string; nextBegins: string }[];

/** The history file of the newest timeline; a service that never failed over has none. */
export async function timelineHistory(paths: WalPlaces, newest: string): Promise<History> {
  const name = `${newest.slice(0, 8)}.history`;
  const text =
    readTextIfSafe(join(paths.archive, name)) ??
    readTextIfSafe(join(paths.data, 'pg_wal', name)) ??
    '';
  return parseHistory(text, Number.parseInt(newest.slice(0, 8), 16));
}

/**
 * A history file as it is written: timelines in ascending order, before the newest. Where it says
 * otherwise, nothing is taken from it: files would follow each other in a circle.
 */
export function parseHistory(text: string, newest: number): History {
  const lines = text
    .split('\n')
    .flatMap((line) => /^\s*(\d+)\s+([0-9A-F]+\/[0-9A-F]+)/.exec(line) ?? []);
  const entries = Array.from({ length: lines.length / 3 }, (_, index) => ({
    timeline: Number(lines[index * 3 + 1]),
    end: lines[index * 3 + 2] ?? '',
  }));
  const next = (index: number): number => entries[index + 1]?.timeline ?? newest;
  if (!entries.every(({ timeline }, index) => timeline < next(index))) return [];
  return entries.map(({ timeline, end }, index) => ({
    timeline: walFileName(timeline, 0n).slice(0, 8),
    nextBegins: walFileName(next(index), parseLsn(end)),
  }));
}

/** The file after this one, of the timeline that the service went on with ([PG] 26.3.6). */
export function followingWalFile(wal: string, history: History): string {
  return onItsTimeline(nextWalFile(wal), history);
}

/**
 * A timeline that ended in this file has no whole one of it: the next one's begins with the same
 * contents.
 */
export function onItsTimeline(wal: string, history: History): string {
  const ended = history.find(({ timeline }) => timeline === wal.slice(0, 8));
  return ended !== undefined && wal.slice(8) >= ended.nextBegins.slice(8)
    ? onItsTimeline(ended.nextBegins, history)
    : wal;
}

export function isWalFile(name: string): boolean {
  return /^[0-9A-F]{24}$/.test(name);
}

/**
 * The WAL file after this one, of 16 MB each: timeline, then 8 digits of 4 GB, then the file in
 * them ([PG] 28.5).
 */
export function nextWalFile(name: string): string {
  const [timeline, high, low] = [
    name.slice(0, 8),
    Number.parseInt(name.slice(8, 16), 16),
    Number.parseInt(name.slice(16), 16),
  ];
  const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, '0');
  return low === 0xff
    ? `${timeline}${hex(high + 1)}${hex(0)}`
    : `${timeline}${hex(high)}${hex(low + 1)}`;
}

/** The position in the WAL at which a file begins. */
export function positionOfWalFile(name: string): bigint {
  const [high, low] = [name.slice(8, 16), name.slice(16, 24)].map((part) => BigInt(`0x${part}`));
  return ((high ?? 0n) << 32n) + (low ?? 0n) * BigInt(WAL_FILE_BYTES);
}
