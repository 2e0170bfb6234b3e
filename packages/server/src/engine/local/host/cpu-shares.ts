/** The weights of servers among each other, by what each uses of the processors. */
import { readFileSync } from 'node:fs';
import { noneOf } from '../../../lib/processes.ts';
import { readCpuUs, writeWeight, type Limits } from './groups.ts';
import { addContention, noContention, type Contention } from './neighbours.ts';
import { isLowered, LOWERED } from './share-out.ts';

type Server = {
  guaranteed: number;
  isLowered: boolean;
  /** The processor time of the server at the last observation, in µs; null: there was none. */
  cpuUs: number | null;
  /** The rounds in which no processor was idle. */
  busy: Contention;
};

/** Time of all processors since the start of the machine, in ticks. */
export type Ticks = { atMs: number; busy: number; all: number };

/** A use is judged by so long: a shorter one depends on chance. */
const WINDOW_MS = 1000;
/** A machine that is less busy has processors for all. */
const BUSY = 0.95;
/** Who uses so many thousandths of a processor is a neighbour whom others notice. */
const NOTABLE_MILLIS = 100;

export function createCpuShares(limits: Limits, read = readTicks) {
  const servers = new Map<string, Server>();
  let last: Ticks | null = null;

  const weigh = (id: string, { guaranteed, isLowered: low }: Server): Promise<void> =>
    writeWeight(limits, id, low ? guaranteed * LOWERED : guaranteed);

  /** The use of a server since the round before; null: it is not known. */
  const look = (id: string, server: Server, elapsedMs: number): number | null => {
    const cpuUs = readCpuUs(limits, id);
    const before = server.cpuUs;
    server.cpuUs = cpuUs;
    return cpuUs === null || before === null ? null : (cpuUs - before) / elapsedMs;
  };

  const judge = async (id: string, server: Server, used: number | null, isBusy: boolean) => {
    if (used === null) return;
    const will = isLowered({ ...server, used }, isBusy);
    if (will === server.isLowered) return;
    await weigh(id, { ...server, isLowered: will });
    server.isLowered = will;
  };

  return {
    /** @param guaranteed thousandths of a processor */
    add: async (id: string, guaranteed: number): Promise<void> => {
      const server = { guaranteed, isLowered: false, cpuUs: null, busy: noContention() };
      servers.set(id, server);
      await weigh(id, server);
    },
    remove: (id: string): void => void servers.delete(id),
    /** The rounds in which no processor was idle while a server ran; null: it has no share. */
    busy: (id: string): Contention | null => {
      const busy = servers.get(id)?.busy;
      return busy === undefined ? null : { ...busy };
    },
    /** Sets weights by what was used since the last time, once that is long enough ago. */
    shareOut: async (): Promise<void> => {
      const now = read();
      const before = last;
      if (before !== null && now.atMs - before.atMs < WINDOW_MS) return;
      last = now;
      if (before === null) return;
      const isBusy = now.busy - before.busy >= (now.all - before.all) * BUSY;
      const isEven = [...servers.values()].every((server) => !server.isLowered);
      if (!isBusy && isEven) {
        for (const server of servers.values()) server.cpuUs = null;
        return;
      }
      const elapsedMs = now.atMs - before.atMs;
      const looks = [...servers].map(([id, server]) => {
        return { id, server, used: look(id, server, elapsedMs) };
      });
      const using = looks.filter(({ used }) => used !== null && used >= NOTABLE_MILLIS);
      const keys = using.map(({ id }) => id);
      for (const { id, server, used } of looks) {
        if (isBusy && used !== null) addContention(server.busy, elapsedMs, keys, id);
        // A group that is gone has no server.
        await judge(id, server, used, isBusy).catch(noneOf('ENOENT', 'ENODEV'));
      }
    },
  };
}

/** proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal. */
function readTicks(): Ticks {
  const line = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? '';
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, one) => sum + one, 0);
  const idle = (ticks[3] ?? 0) + (ticks[4] ?? 0);
  return { atMs: performance.now(), busy: all - idle, all };
}
