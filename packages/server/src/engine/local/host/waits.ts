/** How long the processes of a server have waited for a processor, and its writes for the disk. */
import type { Waits } from '../../engine.ts';
import type { Contention } from './neighbours.ts';

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
