/** How the members of a service follow each other: settings, and what the files of a data directory say of how far it has come. */
import { open, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { InstancePaths } from './layout.ts';
import { quoted } from './settings.ts';
import { CONTROL_ROLE } from './files.ts';

/** How the names of members begin, and those of nodes of read replica sets. */
export const MEMBER = 'member_';
export const NODE = 'node_';

/** The name of a member in its slot, its connection and the synchronous names. */
export const memberName = (n: number): string => `${MEMBER}${n}`;

/** The same of a node of a read replica set, which follows another service's primary. */
export const nodeName = (set: string, n: number): string => `${NODE}${set}_${n}`;

/** How many of which members have a write before it is acknowledged. `count` 0: nobody is waited for. */
export type Quorum = { count: number; members: readonly number[] };

export const NOBODY: Quorum = { count: 0, members: [] };

/**
 * Whom a primary waits for. `before`: under whom it has acknowledged writes that those of now are not known to have yet; to be certain of
 * these writes, so many of each of them have to be alive as well.
 */
export type WaitedFor = { now: Quorum; before: readonly Quorum[] };

/** Of one that takes no writes. */
export const WAITS_FOR_NOBODY: WaitedFor = { now: NOBODY, before: [] };

/**
 * The settings of one member or node.
 *
 * @param upstream whom it follows; null: nobody, it takes writes
 * @param waitedFor stands in the same file as a whole, so that both are always of the same moment
 * @param limits settings of the primary that one which follows may not be below
 */
export function replicationConf(
  name: string,
  upstream: { paths: InstancePaths; port: number } | null,
  waitedFor: WaitedFor,
  limits: Readonly<Record<string, number>> = {},
): string {
  const conninfo =
    upstream === null
      ? []
      : [
          // Over the Unix socket, in a directory of the servers' user alone: nothing to encrypt, and half the work (performance.md, 9.5).
          `primary_conninfo = ${quoted(`host=${upstream.paths.socket} port=${upstream.port} user=${CONTROL_ROLE} application_name=${name}`)}`,
          `primary_slot_name = ${quoted(name)}`,
        ];
  return [
    '# Written by Howdah from the members of the service; changes are overwritten.',
    ...conninfo,
    // With the default of 5 s every few failovers wait for it (performance.md, section 3).
    'wal_retrieve_retry_interval = 10ms',
    `synchronous_standby_names = ${quoted(quorumSetting(waitedFor.now))}`,
    ...waitedFor.before.map((quorum) => `${BEFORE}${quorumSetting(quorum)}`),
    ...Object.entries(limits).map(([setting, value]) => `${setting} = ${value}`),
    '',
  ].join('\n');
}

/** A quorum as PostgreSQL takes it. */
export function quorumSetting({ count, members }: Quorum): string {
  return count === 0 ? '' : `ANY ${count} (${members.map(memberName).join(', ')})`;
}

const BEFORE = '# acknowledged before: ';

/** Whom a primary waits for by a file that {@link replicationConf} wrote. */
export function waitedForOf(conf: string): WaitedFor {
  const lines = conf.split('\n');
  const now = lines.find((line) => line.startsWith('synchronous_standby_names = ')) ?? '';
  return { now: parseQuorum(now), before: lines.filter((line) => line.startsWith(BEFORE)).map(parseQuorum) };
}

function parseQuorum(text: string): Quorum {
  const match = /ANY (\d+) \(([^)]*)\)/.exec(text);
  if (match?.[1] === undefined || match[2] === undefined) return NOBODY;
  return { count: Number(match[1]), members: match[2].split(', ').map((name) => Number(name.slice(MEMBER.length))) };
}

/**
 * Whom the primary shall wait for. Where fewer than wanted follow, writes wait; except until the first time that as many follow as never
 * had to before: right after a promotion, when what the primary has is all there is, and where more are asked for than there are yet.
 */
export function nextQuorum(wanted: number, members: readonly number[], streaming: readonly number[], inForce: Quorum): Quorum {
  if (wanted === 0) return NOBODY;
  if (streaming.length >= wanted) return { count: wanted, members: streaming };
  return inForce.count < wanted ? inForce : { count: wanted, members };
}

/** Whom the primary waits for once its quorum is another one. */
export function nextWaitedFor(next: Quorum, { now, before }: WaitedFor): WaitedFor {
  // Nobody is waited for: what was acknowledged by anybody is no more than the rest.
  if (next.count === 0) return WAITS_FOR_NOBODY;
  const open = [...before, now].filter((quorum) => !covers(next, quorum));
  return { now: next, before: [...new Map(open.map((quorum) => [quorumSetting(quorum), quorum])).values()] };
}

/** Whether so many alive of one quorum as make certain of its writes are certain to have those of another as well. */
function covers(next: Quorum, before: Quorum): boolean {
  return before.count >= next.count && before.members.every((n) => next.members.includes(n));
}

// ── positions in the log ─────────────────────────────────────────────────────────────────────────────────────────

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
/** Offset of the page's own position in its header, and the header's length (src/include/access/xlog_internal.h). */
const PAGE_POSITION_OFFSET = 8;

/** The newest timeline of which there is WAL; 0: none. */
export async function newestTimeline(data: string): Promise<number> {
  const files = (await readdir(join(data, 'pg_wal'))).filter((name) => /^[0-9A-F]{24}$/.test(name));
  return Math.max(0, ...files.map((name) => Number.parseInt(name.slice(0, 8), 16)));
}

const CHECKPOINT_OFFSET = 32;

/**
 * Where the last checkpoint of a server begins: its shutdown, when it was stopped in order. PostgreSQL source:
 * src/include/catalog/pg_control.h, the same since 9.
 */
export async function lastCheckpoint(data: string): Promise<bigint> {
  return (await readFile(join(data, 'global', 'pg_control'))).readBigUInt64LE(CHECKPOINT_OFFSET);
}

/**
 * Where the log of a server that does not run ends, found by walking its pages from a position on: each carries its own
 * position, by which what is left of a recycled file is told from what was written. A position whose file has been removed is before the
 * last checkpoint: it is removed by that.
 *
 * @param limitBytes how far to walk
 */
export async function endOfWal(data: string, timeline: number, from: bigint, limitBytes: bigint): Promise<bigint> {
  const checkpoint = await lastCheckpoint(data);
  let end = checkpoint > from ? checkpoint : from;
  for (let page = (from / PAGE_BYTES) * PAGE_BYTES; page <= from + limitBytes; page += PAGE_BYTES) {
    const contents = await readPage(join(data, 'pg_wal', walFileName(timeline, page)), page % SEGMENT_BYTES);
    if (contents === null || contents.readBigUInt64LE(PAGE_POSITION_OFFSET) !== page) return end;
    const used = BigInt(contents.findLastIndex((byte) => byte !== 0) + 1);
    if (page + used > end) end = page + used;
  }
  return end;
}

/** Header of a page of the log, and of the first one of a file; the shortest record (src/include/access/xlog_internal.h, xlogrecord.h). */
const [PAGE_HEADER_BYTES, FILE_HEADER_BYTES, RECORD_MIN_BYTES] = [24n, 40n, 24];

/** Where a record of the log ends, by the length that it begins with; null: there is none. */
export async function endOfRecord(data: string, timeline: number, begin: bigint): Promise<bigint | null> {
  const page = (begin / PAGE_BYTES) * PAGE_BYTES;
  const contents = await readPage(join(data, 'pg_wal', walFileName(timeline, page)), page % SEGMENT_BYTES);
  if (contents === null || contents.readBigUInt64LE(PAGE_POSITION_OFFSET) !== page) return null;
  const lengthBytes = contents.readUInt32LE(Number(begin - page));
  if (lengthBytes < RECORD_MIN_BYTES) return null;
  let position = begin;
  for (let left = BigInt(lengthBytes); ;) {
    const onPage = PAGE_BYTES - (position % PAGE_BYTES);
    if (left <= onPage) return position + left;
    left -= onPage;
    position += onPage;
    position += position % SEGMENT_BYTES === 0n ? FILE_HEADER_BYTES : PAGE_HEADER_BYTES;
  }
}

async function readPage(path: string, offset: bigint): Promise<Buffer | null> {
  const file = await open(path, 'r').catch(() => null);
  if (file === null) return null;
  try {
    const page = Buffer.alloc(Number(PAGE_BYTES));
    const { bytesRead } = await file.read(page, 0, page.length, Number(offset));
    return bytesRead === page.length ? page : null;
  } finally {
    await file.close();
  }
}

/** The WAL file that holds a position: timeline, then 8 digits of 4 GB, then the file of 16 MB in them. */
export function walFileName(timeline: number, position: bigint): string {
  const hex = (value: bigint | number): string => value.toString(16).toUpperCase().padStart(8, '0');
  return `${hex(timeline)}${hex(position >> 32n)}${hex((position & 0xffffffffn) / SEGMENT_BYTES)}`;
}
