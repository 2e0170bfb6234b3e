/** Which waits of a service are worth a word: they are why it is slow just now. */
import type { ServiceWaits } from '@howdah/contract';
import type { Usage, Wait } from '../../engine/engine.ts';

/** So many thousandths of its processes wait for a processor, and a quarter of those that run. */
const CPU_MILLIS = 200;
const CPU_PART = 1 / 4;
/** A tenth of the time. */
const WRITE_MILLIS = 100;

type Used = Pick<Usage, 'cpuMillis' | 'waits'>;

/**
 * The notable waits of a service: of the server that waits longest for each.
 *
 * @param servers the primary, or the nodes of a read replica set
 * @returns null: there are none
 */
export function notableWaits(servers: readonly Used[]): ServiceWaits | null {
  const cpu = longest(servers.filter(isShortOfCpu).map(({ waits }) => waits.cpu));
  const writes = longest(servers.map(({ waits }) => waits.writes));
  const isWriting = writes !== null && writes.millis >= WRITE_MILLIS;
  if (cpu === null && !isWriting) return null;
  return {
    ...(cpu === null ? {} : { cpu: documentOf(cpu) }),
    ...(isWriting ? { writes: documentOf(writes) } : {}),
  };
}

function isShortOfCpu({ cpuMillis, waits: { cpu } }: Used): boolean {
  return cpu !== null && cpu.millis >= CPU_MILLIS && cpu.millis >= cpuMillis * CPU_PART;
}

const longest = (waits: readonly (Wait | null)[]): Wait | null =>
  waits.filter((wait) => wait !== null).toSorted((a, b) => b.millis - a.millis)[0] ?? null;

const documentOf = ({ millis, neighbours }: Wait) => ({
  millis,
  ...(neighbours === null ? {} : { neighbours }),
});
