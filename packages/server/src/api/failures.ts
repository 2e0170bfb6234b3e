/** How often wrong keys came from each address within a minute. */
import { isIPv6 } from 'node:net';

const WINDOW_MS = 60_000;
/** At most this many addresses are counted: beyond it all counts begin again. */
const MOST_ADDRESSES = 100_000;

export function createFailures(mostPerMinute: number, now: () => number = () => performance.now()) {
  let counts = new Map<string, number>();
  let beganMs = now();

  return {
    /** Notes a wrong key. @returns false when there were too many from that address */
    note: (address: string): boolean => {
      if (now() - beganMs >= WINDOW_MS || counts.size >= MOST_ADDRESSES) {
        counts = new Map();
        beganMs = now();
      }
      const whose = sourceOf(address);
      const count = (counts.get(whose) ?? 0) + 1;
      counts.set(whose, count);
      return count <= mostPerMinute;
    },
  };
}

/** Whom an address belongs to: of IPv6 everybody has a network of 64 bits. */
export function sourceOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !isIPv6(address)) return mapped ?? address;
  const [head = '', tail = ''] = address.split('::');
  const groups = head.split(':').filter((group) => group !== '');
  const rest = address.includes('::') ? tail.split(':').filter((group) => group !== '') : [];
  const zeros = Array.from({ length: Math.max(0, 8 - groups.length - rest.length) }, () => '0');
  return [...groups, ...zeros, ...rest].slice(0, 4).join(':');
}
