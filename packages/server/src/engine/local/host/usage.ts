/** The resources that a running server uses, as the kernel and PostgreSQL count them. */
import { isOfUsers } from '../../../domain/postgres/databases.ts';
import type { Usage } from '../../engine.ts';
import { bytesBelow } from './space.ts';
import type { InstancePaths } from './layout.ts';
import { SLOTS_ROLE } from '../postgres/files.ts';
import type { Shares } from './shares.ts';
import { waitsBetween, type WaitCounters } from './waits.ts';
import type { Monitor } from '../postgres/monitor.ts';
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
  { monitor, shares }: { monitor: Monitor; shares: Pick<Shares, 'contention'> },
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
    `select (select count(*)::int from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()
               and usename is distinct from '${SLOTS_ROLE}') as connections,
            (select sum(xact_commit + xact_rollback)::text
             from pg_stat_database d where ${isOfUsers('d')}) as transactions,
            case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end::text as wal`,
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
