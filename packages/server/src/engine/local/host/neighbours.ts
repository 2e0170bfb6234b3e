/** How many services wanted the processors or the disk of a machine while another was held back. */
import { COPIES } from './groups.ts';
import { partsOfKey } from './layout.ts';

/**
 * Counters since a server got its shares. `ms`: how long it was held back, or might have been;
 * `neighbourMs`: the number of other services that wanted the same, added up over this time.
 */
export type Contention = { ms: number; neighbourMs: number };

export const noContention = (): Contention => ({ ms: 0, neighbourMs: 0 });

/** @param keys of the servers that wanted the same, with or without this one */
export function addContention(
  counted: Contention,
  ms: number,
  keys: readonly string[],
  key: string,
): void {
  counted.ms += ms;
  counted.neighbourMs += ms * countServices(keys, partsOfKey(key).id);
}

/** Standbys are of the same service, and copies of files are of none. */
function countServices(keys: readonly string[], except: string): number {
  const ids = keys.filter((key) => key !== COPIES).map((key) => partsOfKey(key).id);
  return new Set(ids.filter((id) => id !== except)).size;
}
