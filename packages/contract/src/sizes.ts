/**
 * A size of a service: CPU in thousandths of a core, which is its guarantee, and memory in
 * gigabytes, which is its limit. `shared` has a small guarantee and no limit.
 */
export type Size = { cpuMillis: number; memoryGbs: number } | 'shared';

/** The guarantee of the shared size, in thousandths of a core. */
export const SHARED_CPU_MILLIS = 100;

/** The sizes of a service, smallest first. One of the pair implies the other. */
export const SERVICE_SIZES = [
  { cpuMillis: 500, memoryGbs: 2 },
  { cpuMillis: 1000, memoryGbs: 4 },
  { cpuMillis: 2000, memoryGbs: 8 },
  { cpuMillis: 4000, memoryGbs: 16 },
  { cpuMillis: 8000, memoryGbs: 32 },
  { cpuMillis: 16000, memoryGbs: 64 },
  { cpuMillis: 32000, memoryGbs: 128 },
  { cpuMillis: 48000, memoryGbs: 192 },
  { cpuMillis: 64000, memoryGbs: 256 },
] as const satisfies readonly Exclude<Size, 'shared'>[];

/** The sizes of a node of a read replica set, smallest first. */
export const NODE_SIZES = [
  { cpuMillis: 250, memoryGbs: 1 },
  ...SERVICE_SIZES,
] as const satisfies readonly Exclude<Size, 'shared'>[];

export const DEFAULT_SIZE: Size = SERVICE_SIZES[0];

/** The most that one server of a service may store on the disk, in gigabytes (10^9 bytes). */
export const STORAGE_GB = { min: 1, max: 65_536 } as const;

/** The quota of a service whose request has none: it grows with the memory. */
export function defaultStorageGb(size: Size): number {
  return size === 'shared' ? 10 : Math.max(10, 5 * size.memoryGbs);
}

/** The largest server that a machine, or a node of a cluster, has room for. */
export type Capacity = Readonly<{ cpuMillis: number; memoryBytes: number }>;

/** A number of a request: digits as a string or an integer; `shared` on create and fork. */
export type SizeInput = string | number | undefined;

export type SizeResult = { size: Size } | { problem: string };

/**
 * Reads the pair `cpu_millis`, `memory_gbs` of a request.
 *
 * @param fallback the size if neither is given; null: one must be given (resize)
 * @param sharedAllowed whether `shared` is allowed (create and fork, never resize)
 * @param sizes the allowed sizes
 */
export function parseSize(
  cpuMillis: SizeInput,
  memoryGbs: SizeInput,
  {
    fallback,
    sharedAllowed,
    sizes = SERVICE_SIZES,
  }: { fallback: Size | null; sharedAllowed: boolean; sizes?: readonly Exclude<Size, 'shared'>[] },
): SizeResult {
  const pairs = sizes.map((size) => `${size.cpuMillis}/${size.memoryGbs}`).join(', ');
  const allowed =
    'allowed pairs cpu_millis/memory_gbs: ' + (sharedAllowed ? 'shared/shared, ' : '') + pairs;
  if (cpuMillis === undefined && memoryGbs === undefined) {
    return fallback === null ? { problem: `cpu_millis: missing; ${allowed}` } : { size: fallback };
  }
  if (cpuMillis === 'shared' || memoryGbs === 'shared') {
    const both = (cpuMillis ?? 'shared') === 'shared' && (memoryGbs ?? 'shared') === 'shared';
    return both && sharedAllowed
      ? { size: 'shared' }
      : { problem: found(cpuMillis, memoryGbs, allowed) };
  }
  const size = sizes.find(
    (candidate) =>
      (cpuMillis === undefined || sameNumber(cpuMillis, candidate.cpuMillis)) &&
      (memoryGbs === undefined || sameNumber(memoryGbs, candidate.memoryGbs)),
  );
  return size === undefined ? { problem: found(cpuMillis, memoryGbs, allowed) } : { size };
}

/** Whether two sizes are the same. */
export function sameSize(a: Size, b: Size): boolean {
  return a === 'shared' || b === 'shared'
    ? a === b
    : a.cpuMillis === b.cpuMillis && a.memoryGbs === b.memoryGbs;
}

function sameNumber(input: string | number, value: number): boolean {
  return typeof input === 'number'
    ? input === value
    : /^[0-9]{1,9}$/.test(input) && Number(input) === value;
}

function found(cpuMillis: SizeInput, memoryGbs: SizeInput, allowed: string): string {
  const shown = [
    cpuMillis === undefined ? null : `cpu_millis ${JSON.stringify(cpuMillis)}`,
    memoryGbs === undefined ? null : `memory_gbs ${JSON.stringify(memoryGbs)}`,
  ].filter((part) => part !== null);
  return `cpu_millis, memory_gbs: found ${shown.join(' with ')}; ${allowed}`;
}
