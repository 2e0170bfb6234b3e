/** The resources that a running server uses, as the kernel and PostgreSQL count them. */
import { isOfUsers } from '../../../domain/postgres/databases.ts';
import type { Usage, Waits } from '../../engine.ts';
import { bytesBelow } from './space.ts';
import type { InstancePaths } from './layout.ts';
import { SLOTS_ROLE } from '../../postgres/roles.ts';
import type { Shares, Contention } from './shares.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import {
  childrenOf,
  findProcess,
  proportionalBytes,
  runDelayNs,
  type Process,
} from '../../../lib/processes.ts';

/** USER_HZ, in which /proc counts CPU time: 100 on every architecture that Node runs on. */
const TICKS_PER_SECOND = 100;

/**
 * The previous measurement, from which rates are computed, and the size on disk, which is only
 * measured again after writes.
 */
export type Glance = {
  atMs: number;
  cpuTicks: number;
  startTicks: string;
  walPosition: string;
  storageBytes: number;
  waits: WaitCounters;
};

/** @param before the glance that the last call returned, or null */
export async function measure(
  { monitor, shares }: { monitor: Monitored; shares: Pick<Shares, 'contention'> },
  paths: InstancePaths,
  id: string,
  postmaster: Process,
  before: Glance | null,
): Promise<{ usage: Omit<Usage, 'node' | 'lag'>; glance: Glance }> {
  const pids = [postmaster.pid, ...(await childrenOf(postmaster.pid))];
  const processes = (await Promise.all(pids.map(findProcess))).filter((found) => found !== null);
  const memory = await Promise.all(pids.map(proportionalBytes));
  // Backends that ended are counted with their parent.
  const cpuTicks =
    processes.reduce((sum, found) => sum + found.cpuTicks, 0) + (processes[0]?.childCpuTicks ?? 0);
  const atMs = Date.now();
  const waits = { atMs, processes: runDelaysOf(processes), ...shares.contention(id) };
  const [row] = await monitor.query<{ connections: number; transactions: string; wal: string }>(
    id,
    `select (select count(*)::int from pg_stat_activity where backend_type = 'client backend'
       and pid <> pg_backend_pid()
               and usename is distinct from '${SLOTS_ROLE}') as connections,
            (select sum(xact_commit + xact_rollback)::text
             from pg_stat_database d where ${isOfUsers('d')}) as transactions,
            case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
              else pg_current_wal_insert_lsn() end::text as wal`,
  );
  const walPosition = row?.wal ?? '';
  const storageBytes =
    before?.walPosition === walPosition ? before.storageBytes : await bytesBelow(paths.data);
  const same = before !== null && before.startTicks === postmaster.startTicks ? before : null;
  const elapsedMs = same === null ? 0 : atMs - same.atMs;
  const usedMs = same === null ? 0 : ((cpuTicks - same.cpuTicks) / TICKS_PER_SECOND) * 1000;
  return {
    usage: {
      cpuMillis: elapsedMs > 0 ? Math.max(0, Math.round((usedMs / elapsedMs) * 1000)) : 0,
      memoryBytes: memory.reduce((sum, bytes) => sum + bytes, 0),
      storageBytes,
      connections: row?.connections ?? 0,
      transactions: Number(row?.transactions ?? 0),
      waits: waitsBetween(same?.waits ?? null, waits),
    },
    glance: { atMs, cpuTicks, startTicks: postmaster.startTicks, walPosition, storageBytes, waits },
  };
}

/** The wait of each process for a processor, in ns; null: the kernel does not count it. */
function runDelaysOf(processes: readonly Process[]): Map<string, number> | null {
  const delays = processes.flatMap(({ pid, startTicks }) => {
    const ns = runDelayNs(pid);
    return ns === null ? [] : [[`${pid} ${startTicks}`, ns] as const];
  });
  return delays.length === 0 ? null : new Map(delays);
}

// How long the processes of a server have waited for a processor, and its writes for the disk.

/** Counters of the waits of a server. */
export type WaitCounters = {
  atMs: number;
  /** The wait of each process for a processor, in ns; null: the kernel does not count it. */
  processes: ReadonlyMap<string, number> | null;
  /** How long a CPU quota held it back. Not all kernels count this as a wait of its processes. */
  throttledMs: number;
  /** The rounds in which no processor was idle; null: nobody shares them out. */
  cpu: Contention | null;
  /** The rounds in which its limit held its writes back; null: it has none. */
  writes: Contention | null;
};

/** @param before of the same server; null: it has just started, and nothing is known yet */
export function waitsBetween(before: WaitCounters | null, now: WaitCounters): Waits {
  const elapsedMs = before === null ? 0 : now.atMs - before.atMs;
  const millis = (ms: number): number =>
    elapsedMs > 0 ? Math.max(0, Math.round((ms / elapsedMs) * 1000)) : 0;
  const throttledMs = before === null ? 0 : now.throttledMs - before.throttledMs;
  const waitMs = waitedMs(before?.processes ?? null, now.processes);
  const cpuMs = waitMs === null ? null : Math.max(waitMs, throttledMs);
  const writesMs = grown(before?.writes ?? null, now.writes).ms;
  return {
    cpu:
      cpuMs === null
        ? null
        : { millis: millis(cpuMs), neighbours: neighboursIn(before?.cpu ?? null, now.cpu) },
    writes:
      now.writes === null
        ? null
        : {
            // A round may have begun before the last measurement.
            millis: Math.min(1000, millis(writesMs)),
            neighbours: neighboursIn(before?.writes ?? null, now.writes),
          },
  };
}

/** A process that is new since then has waited in this time only; one that has ended is missing. */
function waitedMs(
  before: WaitCounters['processes'],
  now: WaitCounters['processes'],
): number | null {
  if (now === null) return null;
  if (before === null) return 0;
  const waited = [...now].map(([process, ns]) => Math.max(0, ns - (before.get(process) ?? 0)));
  return waited.reduce((sum, ns) => sum + ns, 0) / 1e6;
}

/** The mean number of neighbours, rounded; null: it is not counted. */
function neighboursIn(before: Contention | null, now: Contention | null): number | null {
  if (now === null) return null;
  const { ms, neighbourMs } = grown(before, now);
  return ms > 0 ? Math.round(neighbourMs / ms) : 0;
}

/** Counters begin again when a server gets its shares again. */
function grown(before: Contention | null, now: Contention | null): Contention {
  if (before === null || now === null) return { ms: 0, neighbourMs: 0 };
  if (now.ms < before.ms) return now;
  return { ms: now.ms - before.ms, neighbourMs: now.neighbourMs - before.neighbourMs };
}
