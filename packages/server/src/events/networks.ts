/** To which addresses webhooks may be delivered: none from which only this machine or its network can be reached, unless configured. */
import { BlockList, isIP } from 'node:net';

/** Networks that are nobody's on the Internet: RFC 6890 and its successors, IANA's special-purpose address registries. */
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
  '::/128',
  '::1/128',
  '64:ff9b::/96', // leads to any IPv4 address
  '64:ff9b:1::/48',
  '100::/64',
  '2001::/23',
  '2001:db8::/32',
  '2002::/16', // likewise
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
] as const;

const privateNetworks = blockListOf(PRIVATE_NETWORKS);

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
 * Whether a webhook may be delivered to an address. An IPv4 address inside an IPv6 one counts as the IPv4 address.
 *
 * @param allowed networks that may be reached although they are private
 */
export function mayReach(address: string, allowed: BlockList): boolean {
  const family = isIP(address);
  if (family === 0) return false;
  const kind = family === 6 ? 'ipv6' : 'ipv4';
  return allowed.check(address, kind) || !privateNetworks.check(address, kind);
}
