/** Arithmetic with IPv4 networks, as VPCs need it. An address is a number below 2^32. */
import { isIP } from 'node:net';
import { Address4, Address6 } from 'ip-address';

/** A network: its first address, and the length of its prefix in bits. */
type Cidr = { first: number; bits: number };

/** The private networks (RFC 1918) that contain every VPC, and the sizes that one may have. */
const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'] as const;
const LARGEST_BITS = 16;
const SMALLEST_BITS = 28;

/** Parses a network such as 10.1.0.0/16. @returns null if it is not one */
export function parseCidr(text: string): (Cidr & { exact: boolean }) | null {
  const [, address, bits] = /^([0-9.]{7,15})\/([0-9]{1,2})$/.exec(text) ?? [];
  if (
    address === undefined ||
    bits === undefined ||
    !Address4.isValid(address) ||
    Number(bits) > 32
  )
    return null;
  const number = addressNumber(address);
  const first = number - (number % sizeOf({ bits: Number(bits) }));
  return { first, bits: Number(bits), exact: number === first && String(Number(bits)) === bits };
}

/** Parses a network that is known to be valid: from the metadata database. */
export function trustedCidr(text: string): Cidr {
  const cidr = parseCidr(text);
  if (cidr === null) throw new Error(`${text} is no network`);
  return cidr;
}

/** Why a text cannot be the network of a VPC; null: it can. */
export function vpcCidrProblem(text: string): string | null {
  const found = `cidr: found ${JSON.stringify(text)}`;
  const cidr = parseCidr(text);
  if (cidr === null) return `${found}; allowed is an IPv4 network like 10.1.0.0/16`;
  if (!cidr.exact)
    return `${found}, which has bits set beyond the network's; the network is ${cidrText(cidr)}`;
  if (cidr.bits < LARGEST_BITS || cidr.bits > SMALLEST_BITS)
    return `${found}; allowed are sizes from /${LARGEST_BITS} to /${SMALLEST_BITS}`;
  if (!PRIVATE.some((range) => contains(trustedCidr(range), cidr)))
    return `${found}; allowed are private networks, parts of ${PRIVATE.join(', ')}`;
  return null;
}

/** The number of addresses of a network. */
function sizeOf({ bits }: Pick<Cidr, 'bits'>): number {
  return 2 ** (32 - bits);
}

function contains(outer: Cidr, inner: Cidr): boolean {
  return inner.first >= outer.first && inner.first + sizeOf(inner) <= outer.first + sizeOf(outer);
}

/** Whether two networks have an address in common. */
export function overlap(a: Cidr, b: Cidr): boolean {
  return contains(a, b) || contains(b, a);
}

/** The address with this number in a network; the network's own is 0. */
export function addressAt({ first }: Cidr, host: number): string {
  return addressText(first + host);
}

/** The router's address in a VPC: the first. */
export const ROUTER_HOST = 1;

/**
 * The address that a service gets: the next free one after the one taken last, continuing at the
 * begin. Services have the lower half of a VPC, except the network's own address and the router's;
 * the upper half is for the machines of its users.
 *
 * @param taken numbers of addresses that services have
 * @returns its number; null: all are taken
 */
export function nextHost(cidr: Cidr, last: number, taken: ReadonlySet<number>): number | null {
  const [first, count] = [ROUTER_HOST + 1, serviceCapacity(cidr)];
  for (let step = 0; step < count; step++) {
    const host = first + ((last + 1 - first + step) % count);
    if (!taken.has(host)) return host;
  }
  return null;
}

/** How many services a VPC holds. */
export function serviceCapacity(cidr: Cidr): number {
  return sizeOf(cidr) / 2 - ROUTER_HOST - 1;
}

/** The number of an address in a network. */
export function hostOf({ first }: Cidr, address: string): number {
  return addressNumber(address) - first;
}

export function cidrText({ first, bits }: Cidr): string {
  return `${addressText(first)}/${bits}`;
}

function addressNumber(address: string): number {
  return Number(new Address4(address).bigInt());
}

function addressText(number: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join('.');
}

// Networks of allow lists: IPv4 and IPv6, in the one spelling that rules and queries compare.

const IPV6_BITS = 128;
/** IPv4 as IPv6 shows it: clients with such addresses are seen as IPv4. */
const MAPPED_IPV4 = new Address6('::ffff:0:0/96');

/**
 * Parses a network such as 203.0.113.0/24 or 2001:db8::/32.
 *
 * @returns the network in its canonical spelling, or why it is none
 */
export function parseCidrBlock(text: string): { network: string } | { problem: string } {
  const found = `found ${JSON.stringify(text)}`;
  const family = isIP(text);
  if (family !== 0)
    return { problem: `${found}; a single address is written ${text}/${family === 6 ? 128 : 32}` };
  const network = text.includes(':') ? parseIpv6(text) : parseIpv4(text);
  if (network === null)
    return { problem: `${found}; allowed are networks like 203.0.113.0/24 or 2001:db8::/32` };
  if (network.isMapped)
    return {
      problem: `${found}; clients with IPv4 addresses connect as such: name the IPv4 network`,
    };
  if (!network.isExact)
    return {
      problem: `${found}, which has bits set beyond the network's; the network is ${network.text}`,
    };
  return { network: network.text };
}

/** isExact: no bit is set beyond the network's. */
type Network = { text: string; isExact: boolean; isMapped: boolean };

function parseIpv4(text: string): Network | null {
  const cidr = parseCidr(text);
  return cidr === null ? null : { text: cidrText(cidr), isExact: cidr.exact, isMapped: false };
}

function parseIpv6(text: string): Network | null {
  const [, address, bits] = /^([0-9A-Fa-f:.]+)\/(0|[1-9][0-9]{0,2})$/.exec(text) ?? [];
  if (address === undefined || isIP(address) !== 6 || Number(bits) > IPV6_BITS) return null;
  const parsed = new Address6(`${address}/${bits}`);
  const first = parsed.startAddress();
  return {
    text: `${first.correctForm()}/${bits}`,
    isExact: new Address6(address).bigInt() === first.bigInt(),
    isMapped: Number(bits) >= MAPPED_IPV4.subnetMask && parsed.isInSubnet(MAPPED_IPV4),
  };
}
