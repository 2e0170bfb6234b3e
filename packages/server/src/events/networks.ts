/**
 * The addresses that webhooks and exporters may send to: none of this machine or its network,
 * unless configured.
 */
import { BlockList, isIP } from 'node:net';

/**
 * Networks that are not part of the Internet: RFC 6890 and its successors, IANA's special-purpose
 * address registries.
 */
const PRIVATE_NETWORKS = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '2001::/23', // Teredo, which holds IPv4 addresses, among others
  '2001:db8::/32',
  '2002::/16', // 6to4: reaches any IPv4 address
  '3fff::/20',
] as const;

const privateNetworks = blockListOf(PRIVATE_NETWORKS);
/**
 * The addresses of the IPv6 Internet. Any other address is local, or holds an IPv4 address in one
 * of many ways: `::127.0.0.1`, `::ffff:0:127.0.0.1`, `64:ff9b::127.0.0.1`.
 */
const internetIpv6 = blockListOf(['2000::/3']);
/** IPv4 as a socket for IPv6 shows it; checked as IPv4. */
const mappedIpv4 = blockListOf(['::ffff:0:0/96']);
/** ISATAP: the last 32 bits are an IPv4 address at the end of a tunnel. */
const ISATAP = /:(?:0?[02]00)?:?5efe:[0-9a-f]{1,4}:[0-9a-f]{1,4}$/;

/** @param networks addresses, and networks in CIDR notation */
export function blockListOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', prefix] = network.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return list;
}

/**
 * Whether a webhook or an exporter may send to an address. An IPv4 address inside an IPv6 one counts
 * as the IPv4 address.
 *
 * @param allowed networks that may be reached although they are private
 */
export function mayReach(address: string, allowed: BlockList): boolean {
  const family = isIP(address);
  if (family === 0) return false;
  const kind = family === 6 ? 'ipv6' : 'ipv4';
  if (allowed.check(address, kind)) return true;
  if (privateNetworks.check(address, kind)) return false;
  return (
    kind === 'ipv4' ||
    mappedIpv4.check(address, kind) ||
    (internetIpv6.check(address, kind) && !ISATAP.test(address))
  );
}
