/**
 * Where a service listens, and which networks may connect: for its servers, its pooler and its
 * gateway. Only this module knows what a VPC means for them.
 */
import { statSync } from 'node:fs';
import { BlockList, isIPv6 } from 'node:net';
import { join } from 'node:path';
import { isWildcard } from '../../../config.ts';
import type { ServiceSpec } from '../../spec.ts';
import { isErrno, readOrNull } from '../../../lib/processes.ts';

/** Where `ip netns` keeps namespaces; nothing in it outlives a start of the machine. */
export const NAMESPACES = '/run/netns';

/** The namespace of a VPC. @param prefix of the names of the installation's namespaces */
export function namespaceOf(prefix: string, vpcId: string): string {
  return `${prefix}${vpcId}`;
}

export function namespacePath(name: string): string {
  return join(NAMESPACES, name);
}

export type Listener = {
  /** The address that users reach it by. */
  address: string;
  /** The network namespace that it runs in; null: the machine's own. */
  namespace: string | null;
  /** The networks whose clients may connect, as 10.1.0.0/16 or 2001:db8::/32; null: all. */
  allowedNetworks: readonly string[] | null;
};

/**
 * A listener without clients outside: for templates, the metadata database, and members behind a
 * gateway.
 */
export const LOCAL_LISTENER: Listener = {
  address: '127.0.0.1',
  namespace: null,
  allowedNetworks: null,
};

/** @param listenAddress the one of services that are in no VPC */
export function listenerOf(
  { vpc, allowedNetworks }: Pick<ServiceSpec, 'vpc' | 'allowedNetworks'>,
  listenAddress: string,
  prefix: string,
): Listener {
  // No other client can reach it: there is nothing to refuse.
  if (vpc !== null && vpc.address !== null)
    return { address: vpc.address, namespace: namespaceOf(prefix, vpc.id), allowedNetworks: null };
  return { address: listenAddress, namespace: null, allowedNetworks };
}

/**
 * In the environment of a process in a namespace: the place of the namespace, which shows later
 * whether it is still the same one.
 */
const PLACE_VARIABLE = 'HOWDAH_PLACE';

/**
 * The namespace of a listener; null: the machine's own network. A namespace that was recreated is
 * another place.
 */
function placeOf({ address, namespace }: Listener): string | null {
  if (namespace === null) return null;
  try {
    return `${namespace} ${statSync(namespacePath(namespace)).ino} ${address}`;
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return `${namespace} - ${address}`;
    throw error;
  }
}

/**
 * How something is started that goes through a listener: the command around its own, and what its
 * environment says.
 */
export function launchOptionsOf(listener: Listener): {
  within: string[];
  environment: Record<string, string>;
} {
  const place = placeOf(listener);
  if (place === null || listener.namespace === null) return { within: [], environment: {} };
  return {
    within: ['nsenter', `--net=${namespacePath(listener.namespace)}`, '--'],
    environment: { [PLACE_VARIABLE]: place },
  };
}

/** Whether a process is in the desired network. */
export async function runsInNetworkOf(pid: number, listener: Listener): Promise<boolean> {
  const environment = ((await readOrNull(`/proc/${pid}/environ`)) ?? '').split('\0');
  const place =
    environment
      .find((entry) => entry.startsWith(`${PLACE_VARIABLE}=`))
      ?.slice(PLACE_VARIABLE.length + 1) ?? null;
  return place === placeOf(listener);
}

/** All networks, as the rules of gateways and poolers name them. */
export const ALL_NETWORKS = ['0.0.0.0/0', '::/0'] as const;

/** Whether a client comes from one of the allowed networks. */
export function isAllowed(allowedNetworks: readonly string[], address: string): boolean {
  const list = new BlockList();
  for (const network of allowedNetworks) {
    const [first = '', bits] = network.split('/');
    list.addSubnet(first, Number(bits), isIPv6(first) ? 'ipv6' : 'ipv4');
  }
  return list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
}

/** The names that a certificate needs besides the usual ones. */
export function hostsOf({ address, namespace }: Listener): string[] {
  return namespace === null ? [] : [address];
}

/** The names and addresses under which clients may reach a server: what certificates carry. */
export function certificateHosts(publicHost: string, listenAddress: string): string[] {
  const listen = isWildcard(listenAddress) ? [] : [listenAddress];
  return [...new Set([publicHost, ...listen, 'localhost', '127.0.0.1', '::1'])];
}
