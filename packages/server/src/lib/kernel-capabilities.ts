/** The capabilities of processes (capabilities(7)): a container takes some of them from root. */
import { readNow } from './processes.ts';

const CAPABILITIES = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_DAC_READ_SEARCH',
  'CAP_FOWNER',
  'CAP_KILL',
  'CAP_SETGID',
  'CAP_SETUID',
  'CAP_SETPCAP',
  'CAP_NET_ADMIN',
  'CAP_SYS_PTRACE',
  'CAP_SYS_ADMIN',
] as const;
export type Capability = (typeof CAPABILITIES)[number];

/** The number of each. */
const BITS: Readonly<Record<Capability, bigint>> = {
  CAP_CHOWN: 0n,
  CAP_DAC_OVERRIDE: 1n,
  CAP_DAC_READ_SEARCH: 2n,
  CAP_FOWNER: 3n,
  CAP_KILL: 5n,
  CAP_SETGID: 6n,
  CAP_SETUID: 7n,
  CAP_SETPCAP: 8n,
  CAP_NET_ADMIN: 12n,
  CAP_SYS_PTRACE: 19n,
  CAP_SYS_ADMIN: 21n,
};

export type CapabilitySet = ReadonlySet<Capability>;

/** The effective capabilities of a process. @param status the text of `/proc/PID/status` */
export function capabilitiesIn(status: string): CapabilitySet {
  const [, digits = '0'] = /^CapEff:\t([0-9a-f]+)$/m.exec(status) ?? [];
  const mask = BigInt(`0x${digits}`);
  return new Set(CAPABILITIES.filter((name) => ((mask >> BITS[name]) & 1n) === 1n));
}

/** Those of this process. */
export function ownCapabilities(): CapabilitySet {
  return capabilitiesIn(readNow('/proc/self/status') ?? '');
}
