/** Networks of allow lists: IPv4 and IPv6, in the one spelling that rules and queries compare. */
import { isIP } from 'node:net';
import { Address6 } from 'ip-address';
import { cidrText, parseCidr } from './cidr.ts';

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
