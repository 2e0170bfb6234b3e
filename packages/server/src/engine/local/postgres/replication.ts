/**
 * The replication settings of members and nodes: the primary to follow, and the standbys that a
 * primary waits for.
 */
import type { InstancePaths } from '../host/layout.ts';
import { conninfoValue, quoted } from '../../../domain/postgres/settings.ts';
import { CONTROL_ROLE } from './files.ts';

/** How the names of members begin, and those of nodes of read replica sets. */
export const MEMBER = 'member_';
export const NODE = 'node_';

/** The name of a member in its slot, its connection and the synchronous names. */
export const memberName = (n: number): string => `${MEMBER}${n}`;

/** The same of a node of a read replica set, which follows another service's primary. */
export const nodeName = (set: string, n: number): string => `${NODE}${set}_${n}`;

/**
 * Whether the directory of a slot is that of a member or a node; one that is being made or dropped
 * has another name.
 */
export const isFollower = (name: string): boolean =>
  [MEMBER, NODE].some((kind) => name.startsWith(kind)) && !name.endsWith('.tmp');

/** How many of which members must have a write before it is acknowledged. `count` 0: none. */
export type Quorum = { count: number; members: readonly number[] };

export const NOBODY: Quorum = { count: 0, members: [] };

/**
 * Whom a primary waits for. `before`: under whom it has acknowledged writes that those of now are
 * not known to have yet; to be certain of these writes, so many of each of them have to be alive as
 * well.
 */
export type WaitedFor = { now: Quorum; before: readonly Quorum[] };

/** For a server that does not accept writes. */
export const WAITS_FOR_NOBODY: WaitedFor = { now: NOBODY, before: [] };

/**
 * The settings of one member or node.
 *
 * @param upstream the primary that it follows; null: it is the primary
 * @param waitedFor is completely in the same file, so that both are always of the same moment
 * @param limits settings that must be at least those of the primary
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
          // Over the Unix socket, in a directory of the servers' user alone: nothing to encrypt,
          // and half the work (docs/performance.md, 9.5).
          `primary_conninfo = ${quoted(conninfoOf(name, upstream))}`,
          `primary_slot_name = ${quoted(name)}`,
        ];
  return [
    '# Written by Howdah from the members of the service; changes are overwritten.',
    ...conninfo,
    // With the default of 5 s every few failovers wait for it (docs/performance.md, section 3).
    'wal_retrieve_retry_interval = 10ms',
    `synchronous_standby_names = ${quoted(quorumSetting(waitedFor.now))}`,
    ...waitedFor.before.map((quorum) => `${BEFORE}${quorumSetting(quorum)}`),
    ...Object.entries(limits).map(([setting, value]) => `${setting} = ${value}`),
    '',
  ].join('\n');
}

function conninfoOf(name: string, { paths, port }: { paths: InstancePaths; port: number }): string {
  const host = conninfoValue(paths.socket);
  return `host=${host} port=${port} user=${CONTROL_ROLE} application_name=${name}`;
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
  return {
    now: parseQuorum(now),
    before: lines.filter((line) => line.startsWith(BEFORE)).map(parseQuorum),
  };
}

function parseQuorum(text: string): Quorum {
  const match = /ANY (\d+) \(([^)]*)\)/.exec(text);
  if (match?.[1] === undefined || match[2] === undefined) return NOBODY;
  return {
    count: Number(match[1]),
    members: match[2].split(', ').map((name) => Number(name.slice(MEMBER.length))),
  };
}

/**
 * The standbys that the primary waits for. Where fewer than wanted follow, writes wait; except
 * until the first time that as many follow as never had to before: right after a promotion, when
 * what the primary has is all there is, and where more are asked for than there are yet.
 */
export function nextQuorum(
  wanted: number,
  members: readonly number[],
  streaming: readonly number[],
  inForce: Quorum,
): Quorum {
  if (wanted === 0) return NOBODY;
  if (streaming.length >= wanted) return { count: wanted, members: streaming };
  return inForce.count < wanted ? inForce : { count: wanted, members };
}

/** Whom the primary waits for once its quorum is another one. */
export function nextWaitedFor(next: Quorum, { now, before }: WaitedFor): WaitedFor {
  // Nobody is waited for: what was acknowledged by anybody is no more than the rest.
  if (next.count === 0) return WAITS_FOR_NOBODY;
  const open = [...before, now].filter((quorum) => !covers(next, quorum));
  return {
    now: next,
    before: [...new Map(open.map((quorum) => [quorumSetting(quorum), quorum])).values()],
  };
}

/**
 * Whether so many alive of one quorum as make certain of its writes are certain to have those of
 * another as well.
 */
function covers(next: Quorum, before: Quorum): boolean {
  return before.count >= next.count && before.members.every((n) => next.members.includes(n));
}

/**
 * Settings that a standby must have at least as large as its primary ([PG] 27.4.3), or its replay
 * pauses.
 */
export const FLOORS = [
  'max_connections',
  'max_worker_processes',
  'max_wal_senders',
  'max_prepared_transactions',
  'max_locks_per_transaction',
];

/** @returns the settings of a primary that `conf`, the configuration of a standby, has too small */
export function floorsOf(
  primary: Readonly<Record<string, number>>,
  conf: string,
): Record<string, number> {
  const own = (name: string): number =>
    Number(new RegExp(`^${name} = (\\d+)$`, 'm').exec(conf)?.[1] ?? '0');
  return Object.fromEntries(
    FLOORS.flatMap((name) =>
      (primary[name] ?? 0) > own(name) ? [[name, primary[name] ?? 0] as const] : [],
    ),
  );
}
