/** How the members of a service follow each other: settings, and what the files of a data directory say of how far it has come. */
import { open, readdir } from 'node:fs/promises';
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
 * The settings of one member or node.
 *
 * @param upstream whom it follows; null: nobody, it takes writes
 * @param limits settings of the primary that one which follows may not be below
 */
export function replicationConf(
  name: string,
  upstream: { paths: InstancePaths; port: number } | null,
  quorum: Quorum,
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
    `synchronous_standby_names = ${quoted(quorumSetting(quorum))}`,
    ...Object.entries(limits).map(([setting, value]) => `${setting} = ${value}`),
    '',
  ].join('\n');
}

/** A quorum as PostgreSQL takes it. */
export function quorumSetting({ count, members }: Quorum): string {
  return count === 0 ? '' : `ANY ${count} (${members.map(memberName).join(', ')})`;
}

/** The quorum that a file written by {@link replicationConf} asks for. */
export function quorumOf(conf: string): Quorum {
  const match = /^synchronous_standby_names = 'ANY (\d+) \(([^)]*)\)'$/m.exec(conf);
  if (match?.[1] === undefined || match[2] === undefined) return NOBODY;
  return { count: Number(match[1]), members: match[2].split(', ').map((name) => Number(name.slice(MEMBER.length))) };
}

/**
 * Whom the primary shall wait for. Where fewer than wanted follow, writes wait; except right after a promotion, until the first time
 * that enough follow the new primary: what it has is all there is, and its own death loses nothing.
 */
export function nextQuorum(wanted: number, members: readonly number[], streaming: readonly number[], inForce: Quorum): Quorum {
  if (wanted === 0) return NOBODY;
  if (streaming.length >= wanted) return { count: wanted, members: streaming };
  return inForce.count === 0 ? NOBODY : { count: wanted, members };
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

/**
 * Where the log of a server that does not run ends, found by walking its pages from a position on: each carries its own
 * position, by which what is left of a recycled file is told from what was written.
 *
 * @param limitBytes how far to walk
 */
export async function endOfWal(data: string, timeline: number, from: bigint, limitBytes: bigint): Promise<bigint> {
  let end = from;
  for (let page = (from / PAGE_BYTES) * PAGE_BYTES; page <= from + limitBytes; page += PAGE_BYTES) {
    const contents = await readPage(join(data, 'pg_wal', walFileName(timeline, page)), page % SEGMENT_BYTES);
    if (contents === null || contents.readBigUInt64LE(PAGE_POSITION_OFFSET) !== page) return end;
    const used = BigInt(contents.findLastIndex((byte) => byte !== 0) + 1);
    if (page + used > end) end = page + used;
  }
  return end;
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
