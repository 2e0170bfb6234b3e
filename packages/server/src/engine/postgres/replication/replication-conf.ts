/**
 * The replication settings of members and nodes: the primary to follow, and the standbys that a
 * primary waits for.
 */
import type { SocketPlace } from '../server-files.ts';
import { conninfoValue, quoted } from '../../../domain/postgres/settings.ts';
import { CONTROL_ROLE, MAINTENANCE_DATABASE, SLOTS_ROLE } from '../roles.ts';

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

/** A primary, and how it is followed. */
export type UpstreamServer = {
  readonly paths: SocketPlace;
  readonly port: number;
  /** Whether the standby also synchronises the failover slots of the primary. */
  readonly withSlots?: boolean;
};

type MoreSettings = {
  /** Settings that must be at least those of the primary. */
  readonly limits?: Readonly<Record<string, number>>;
  /**
   * The physical slots that consumers of failover slots wait for; null: the server does not know
   * such slots.
   */
  readonly slotsAhead?: readonly string[] | null;
};

/**
 * The settings of one member or node.
 *
 * @param upstream the primary that it follows; null: it is the primary
 * @param waitedFor is completely in the same file, so that both are always of the same moment
 */
export function replicationConf(
  name: string,
  upstream: UpstreamServer | null,
  waitedFor: WaitedFor,
  { limits = {}, slotsAhead = null }: MoreSettings = {},
): string {
  const conninfo =
    upstream === null
      ? []
      : [
          // Over the Unix socket, in a directory of the servers' user alone: nothing to encrypt,
          // and half the work (docs/performance.md, 9.5).
          `primary_conninfo = ${quoted(conninfoOf(name, upstream))}`,
          `primary_slot_name = ${quoted(name)}`,
          ...(upstream.withSlots === true ? SYNCHRONISING : []),
        ];
  return [
    '# Written by Howdah from the members of the service; changes are overwritten.',
    ...conninfo,
    // With the default of 5 s every few failovers wait for it (docs/performance.md, section 3).
    'wal_retrieve_retry_interval = 10ms',
    `synchronous_standby_names = ${quoted(quorumSetting(waitedFor.now))}`,
    ...waitedFor.before.map((quorum) => `${BEFORE}${quorumSetting(quorum)}`),
    ...(slotsAhead === null ? [] : [`${SLOTS_AHEAD}${quoted(slotsAhead.join(', '))}`]),
    ...Object.entries(limits).map(([setting, value]) => `${setting} = ${value}`),
    '',
  ].join('\n');
}

/**
 * The worker that synchronises slots needs a database of the primary. The primary keeps the rows of
 * catalogs that copies of the slots need ([PG] 47.2.3); no query on a standby makes it keep more.
 */
const SYNCHRONISING = ['sync_replication_slots = on', 'hot_standby_feedback = on'] as const;

function conninfoOf(name: string, { paths, port, withSlots = false }: UpstreamServer): string {
  const host = conninfoValue(paths.socket);
  const role = withSlots
    ? `user=${SLOTS_ROLE} dbname=${MAINTENANCE_DATABASE}`
    : `user=${CONTROL_ROLE}`;
  return `host=${host} port=${port} ${role} application_name=${name}`;
}

/** Whether a standby synchronises failover slots, by a file that {@link replicationConf} wrote. */
export function synchronisesSlots(conf: string): boolean {
  return conf.split('\n').includes(SYNCHRONISING[0]);
}

const SLOTS_AHEAD = 'synchronized_standby_slots = ';

/** The names in a value of `synchronized_standby_slots`, as {@link replicationConf} writes it. */
export const slotNames = (value: string): string[] => value.match(/\w+/g) ?? [];

/** The slots that consumers wait for, by a file that {@link replicationConf} wrote. */
export function slotsAheadOf(conf: string): string[] {
  const line = conf.split('\n').find((text) => text.startsWith(SLOTS_AHEAD));
  return slotNames(line?.slice(SLOTS_AHEAD.length) ?? '');
}

/**
 * The slots of the standbys that consumers of failover slots wait for, so that no consumer has a
 * change that the next primary has not. They are those that commits wait for; without such, those
 * that stream: a dead standby must not keep changes from consumers. A slot that is missing would
 * stop all of them.
 *
 * @param existing the physical slots of the primary
 */
export function nextSlotsAhead(
  { count, members }: Quorum,
  streaming: readonly number[],
  existing: readonly string[],
): string[] {
  const names = (count > 0 ? members : streaming).map(memberName);
  return names.filter((name) => existing.includes(name)).toSorted();
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
