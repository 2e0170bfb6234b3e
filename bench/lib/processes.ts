/** Memory and CPU time of processes, as the kernel counts them. */
import { readFile } from 'node:fs/promises';
import {
  childrenOf,
  proportionalBytes,
  readOrNull,
} from '../../packages/server/src/lib/processes.ts';

/** A process and all its descendants. */
export async function treeOf(pid: number): Promise<number[]> {
  const below = await Promise.all((await childrenOf(pid)).map(treeOf));
  return [pid, ...below.flat()];
}

/** The memory of a tree, with its share of shared pages, in MB. */
export async function treeMegabytes(pid: number): Promise<number> {
  const bytes = await Promise.all((await treeOf(pid)).map(proportionalBytes));
  return bytes.reduce((sum, one) => sum + one, 0) / 1e6;
}

/**
 * The CPU time of a tree so far in ms, with children that have ended; in nanoseconds where the
 * kernel counts them.
 */
export async function treeCpuMs(pid: number): Promise<number> {
  const each = await Promise.all(
    (await treeOf(pid)).map(async (one) => {
      const nanoseconds = Number(
        ((await readOrNull(`/proc/${one}/schedstat`)) ?? '0').split(' ')[0],
      );
      const stat = (await readOrNull(`/proc/${one}/stat`)) ?? '';
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return nanoseconds / 1e6 + (Number(fields[13] ?? 0) + Number(fields[14] ?? 0)) * 10;
    }),
  );
  return each.reduce((sum, one) => sum + one, 0);
}

/** Resident memory of a process, in MB. */
export async function residentMegabytes(pid: number): Promise<number> {
  return (
    (Number(/^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]) *
      1024) /
    1e6
  );
}
