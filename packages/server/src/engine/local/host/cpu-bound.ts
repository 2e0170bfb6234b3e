/**
 * The bound of a server's CPU, where an operator asks for one: a quota of processor time. Without
 * it, a size is a guarantee only (docs/decisions/0101-guarantees.md). The rules are pure.
 */
import type { ServiceSpec } from '../../spec.ts';

/** The parts of a spec that the limits of a server follow from. */
export type Sized = Pick<ServiceSpec, 'size' | 'cpuBound'>;

/** The processor time that a server may use in each period, both in µs. */
export type CpuQuota = Readonly<{ quotaUs: number; periodUs: number }>;

/** The kernel's default is 100 ms: half a core would be 50 ms of work and 50 ms of rest. */
const SHORTEST_PERIOD_US = 20_000;
/** Two of the slices that a processor takes of a quota (5 ms, sched_cfs_bandwidth_slice_us). */
const LEAST_QUOTA_US = 10_000;

/**
 * The quota of a size. A server that has used its time waits for the next period, and while it uses
 * it others on its processor wait: so periods are short. With a quota of one slice only, a second
 * process of the same server would wait for whole periods.
 */
export function cpuQuota(cpuMillis: number): CpuQuota {
  const periodUs = Math.max(SHORTEST_PERIOD_US, Math.round((LEAST_QUOTA_US * 1000) / cpuMillis));
  return { quotaUs: Math.round((cpuMillis / 1000) * periodUs), periodUs };
}

/**
 * The quota of a server; null: it has none.
 *
 * @param boundsCpu whether its region bounds services that do not say it themselves
 */
export function quotaOf({ size, cpuBound }: Sized, boundsCpu: boolean): CpuQuota | null {
  if (size === 'shared') return null;
  return (cpuBound ?? boundsCpu) ? cpuQuota(size.cpuMillis) : null;
}
