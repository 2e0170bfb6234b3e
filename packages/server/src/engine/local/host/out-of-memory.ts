/**
 * Reports processes that the kernel killed at the memory limit of a server's cgroup: PostgreSQL
 * itself only reports a restart.
 */
import { join } from 'node:path';
import type { Warning } from '@howdah/contract';
import type { Limits } from './groups.ts';
import { readOrNull } from '../../../lib/processes.ts';

/** The kernel's counters of a cgroup. */
export type MemoryCounters = { kills: number; peakBytes: number | null; limitBytes: number };

/** How long a service warns of what has happened. */
const WARN_MS = 600_000;

/** Reads the counters of a server; null: it has no cgroup, or the kernel does not count. */
export async function readMemoryCounters(
  limits: Limits,
  key: string,
): Promise<MemoryCounters | null> {
  switch (limits.kind) {
    case 'none':
      return null;
    case 'v2':
      return countersIn(join(limits.root, key), {
        kills: 'memory.events',
        peak: 'memory.peak',
        limit: 'memory.max',
      });
    case 'v1':
      return countersIn(join(limits.memory, key), {
        kills: 'memory.oom_control',
        peak: 'memory.max_usage_in_bytes',
        limit: 'memory.limit_in_bytes',
      });
  }
}

async function countersIn(
  group: string,
  names: { kills: string; peak: string; limit: string },
): Promise<MemoryCounters | null> {
  const [kills, peak, limit] = await Promise.all(
    [names.kills, names.peak, names.limit].map((name) => readOrNull(join(group, name))),
  );
  const counted = /^oom_kill (\d+)$/m.exec(kills ?? '')?.[1];
  if (counted === undefined || limit == null) return null;
  return {
    kills: Number(counted),
    peakBytes: peak == null ? null : Number(peak),
    limitBytes: Number(limit),
  };
}

/**
 * Records kills between two rounds. Those before this control plane started are not reported: their
 * time is unknown.
 *
 * @param keys of the servers that have a cgroup now
 */
export function createOutOfMemory(
  read: (key: string) => Promise<MemoryCounters | null>,
  keys: () => Promise<readonly string[]>,
  now = Date.now,
) {
  const readAll = async (): Promise<Map<string, number>> => {
    const found = await Promise.all(
      (await keys()).map(async (key) => [key, (await read(key))?.kills ?? 0] as const),
    );
    return new Map(found);
  };
  const atStart = readAll().catch(() => new Map<string, number>());
  const seen = new Map<string, { counters: MemoryCounters; recent: number; untilMs: number }>();

  /** The memory warning of one server; null: none. */
  const warning = async (key: string): Promise<Warning | null> => {
    const counters = await read(key);
    if (counters === null) {
      seen.delete(key);
      return null;
    }
    const before = seen.get(key);
    const known = before?.counters.kills ?? (await atStart).get(key) ?? 0;
    // A group that was made again counts from 0.
    const grown = counters.kills - (counters.kills < known ? 0 : known);
    const isOver = before === undefined || now() >= before.untilMs;
    const recent = (isOver ? 0 : before.recent) + grown;
    seen.set(key, {
      counters,
      recent,
      untilMs: grown > 0 ? now() + WARN_MS : (before?.untilMs ?? 0),
    });
    return recent === 0 ? null : { code: 'MEMORY', message: messageOf(counters, recent) };
  };

  return { warning, forget: (key: string): void => void seen.delete(key) };
}

function messageOf({ limitBytes, peakBytes }: MemoryCounters, kills: number): string {
  const gib = (bytes: number) => `${(bytes / 1024 ** 3).toFixed(2)} GiB`;
  const peak = peakBytes === null ? '' : ` (peak ${gib(peakBytes)})`;
  const what = kills === 1 ? 'a process was ended' : `${kills} processes were ended`;
  return (
    `${what} in the last minutes because the service used all of its memory, ` +
    `${gib(limitBytes)}${peak}; PostgreSQL ended all sessions and recovered each time: ` +
    'resize the service to the next size, lower work_mem, or use fewer connections'
  );
}
