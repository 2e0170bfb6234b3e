/**
 * Where the listeners of a service stand and whom they let in: its servers, its pooler, its gateway, and whatever else listens for it.
 * The one place that knows what a VPC means for them.
 */
import { statSync } from 'node:fs';
import { BlockList, isIPv6 } from 'node:net';
import { join } from 'node:path';
import { isWildcard } from '../../../config.ts';
import type { ServiceVpc } from '../../engine.ts';
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
  /** The networks whose clients it lets in, as 10.1.0.0/16; null: all. */
  allowedNetworks: readonly string[] | null;
};

/** The listener of what listens to nobody outside: templates, the metadata database, the members of a service before they are told otherwise. */
export const LOCAL_LISTENER: Listener = {
  address: '127.0.0.1',
  namespace: null,
  allowedNetworks: null,
};

/** @param listenAddress the one of services that are in no VPC */
export function listenerOf(
  vpc: ServiceVpc | null,
  listenAddress: string,
  prefix: string,
): Listener {
  if (vpc === null) return { address: listenAddress, namespace: null, allowedNetworks: null };
  // Nobody else has a way to it: there is nothing to refuse.
  if (vpc.address !== null)
    return { address: vpc.address, namespace: namespaceOf(prefix, vpc.id), allowedNetworks: null };
  return { address: listenAddress, namespace: null, allowedNetworks: vpc.allowedNetworks };
}

/** In the environment of what runs in a namespace: where it stands, by which it is told whether it stands there still. */
const PLACE_VARIABLE = 'HOWDAH_PLACE';

/** Where something that goes through a listener has to stand; null: in the machine's own network. A namespace that was recreated is another place. */
function placeOf({ address, namespace }: Listener): string | null {
  if (namespace === null) return null;
  try {
    return `${namespace} ${statSync(namespacePath(namespace)).ino} ${address}`;
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return `${namespace} - ${address}`;
    throw error;
  }
}

/** How something is started that goes through a listener: the command around its own, and what its environment says. */
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

/** Whether a client comes from one of the networks that are let in. */
export function isAllowed(allowedNetworks: readonly string[], address: string): boolean {
  const list = new BlockList();
  for (const network of allowedNetworks) {
    const [first = '', bits] = network.split('/');
    list.addSubnet(first, Number(bits), 'ipv4');
  }
  return list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
}

/** What a certificate has to name beside what all do. */
export function hostsOf({ address, namespace }: Listener): string[] {
  return namespace === null ? [] : [address];
}

/** The names and addresses under which clients may reach a server: what certificates carry. */
export function certificateHosts(publicHost: string, listenAddress: string): string[] {
  const listen = isWildcard(listenAddress) ? [] : [listenAddress];
  return [...new Set([publicHost, ...listen, 'localhost', '127.0.0.1', '::1'])];
}
