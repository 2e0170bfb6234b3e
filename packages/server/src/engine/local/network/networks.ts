/**
 * VPCs as networks of their own. Each is a network namespace with a bridge in it: the bridge has
 * the router's address and those of the services that are in the VPC, which run in the namespace.
 * Two that are peered are joined by a pair of veths, with a route on either side. Between the
 * others there is no route, so that there is no rule to keep, and nothing of the machine's own
 * network is touched (docs/decisions/0017-vpc-namespaces.md).
 *
 * Everything is found by its name: namespaces begin with the installation's, interfaces are `vpc`
 * and `to-ID`.
 */
import { readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { VpcMethod } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { addressAt, ROUTER_HOST, trustedCidr } from '../../../lib/cidr.ts';
import type { VpcSpec } from '../../spec.ts';
import { NotYet } from '../../not-yet.ts';
import { namespaceOf, namespacePath, NAMESPACES, type Listener } from './listener.ts';
import { isErrno } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';

const BRIDGE = 'vpc';
const LINK = 'to-';

/** Whether this machine can have networks of our own, or why it cannot and what adds it. */
export type NetworkAbility = { method: VpcMethod; note: string };

const BRIDGE_NOTE =
  'bridge: each VPC is a network of its own, and its services are reached from ' +
  'it and its peers only';
const ADDRESS_NOTE =
  "address: a service in a VPC refuses clients whose address is none of the VPC's or its peers'";

/** Tries whether networks can be made, in private namespaces that end with the attempt. */
export async function probeNetworks(): Promise<NetworkAbility> {
  const without = (why: string): NetworkAbility => ({
    method: 'address',
    note: `${ADDRESS_NOTE}; networks of their own take ${why}`,
  });
  if (process.getuid?.() !== 0) return without('root: start Howdah as root');
  try {
    await run('ip', ['-V']);
  } catch {
    return without('the program ip: apt-get install iproute2');
  }
  try {
    await run('unshare', ['--net', '--mount', '--', 'sh', '-e', '-c', PROBE]);
    return { method: 'bridge', note: BRIDGE_NOTE };
  } catch (error) {
    const refused = messageOf(error);
    return without(
      'CAP_SYS_ADMIN, CAP_NET_ADMIN and a kernel with bridge and veth, ' +
        `and this machine refuses: ${refused}`,
    );
  }
}
/** All that makeNetworks needs: links, addresses, settings, and a name for a namespace. */
const PROBE = `ip link add vpc type bridge
ip link add to-1 type veth peer name to-2
ip addr add 10.0.0.1/28 dev vpc
echo 1 > /proc/sys/net/ipv4/ip_forward
mount -t tmpfs none /run; touch /run/named; mount --bind /proc/self/ns/net /run/named`;

/** The id of a namespace's VPC; null: the namespace does not belong to the installation. */
function vpcOf(prefix: string, name: string): string | null {
  const id = name.startsWith(prefix) ? name.slice(prefix.length) : '';
  return /^[0-9]+$/.test(id) ? id : null;
}

/** All namespaces of the machine, of any installation. */
async function namespaces(): Promise<string[]> {
  try {
    return await readdir(NAMESPACES);
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return [];
    throw error;
  }
}

// ── what is there
// ────────────────────────────────────────────────────────────────────────────────────────────────

/** A network as it is. */
export type NetworkSeen = {
  vpcId: string;
  /** Addresses on its bridge, the router's among them, as 10.1.0.2/16. */
  addresses: string[];
  /**
   * The VPCs that it is joined to; their networks as 10.2.0.0/16, where there is a route to them.
   */
  peers: { id: string; cidr: string | null }[];
  /** Ports of any address that something listens on. */
  listening: { address: string; port: number }[];
};

/** The networks of an installation. Changes nothing. */
export async function findNetworks(prefix: string): Promise<NetworkSeen[]> {
  const names = (await namespaces()).filter((name) => vpcOf(prefix, name) !== null);
  const see = async (name: string, attempt = 1): Promise<NetworkSeen | null> => {
    try {
      return {
        vpcId: vpcOf(prefix, name) ?? '',
        ...(await observeNetwork(name)),
        listening: await listeners(name),
      };
    } catch (error) {
      // The network is being removed: it is unmounted first, then its name goes.
      if (!(await namespaces()).includes(name)) return null;
      if (attempt === LOOK_ATTEMPTS) throw error;
      await sleep(50);
      return see(name, attempt + 1);
    }
  };
  return (await Promise.all(names.map((name) => see(name)))).filter((network) => network !== null);
}
const LOOK_ATTEMPTS = 10;

type Seen = Pick<NetworkSeen, 'addresses' | 'peers'>;

async function observeNetwork(name: string): Promise<Seen> {
  // One line each: "2: vpc    inet 10.1.0.1/16 …", "3: to-1001@if2: <…", "10.2.0.0/16 via 10.2.0.1
  // dev to-1001 …".
  const [addresses, links, routes] = await Promise.all([
    run('ip', ['-n', name, '-o', '-4', 'addr', 'show']),
    run('ip', ['-n', name, '-o', 'link', 'show']),
    run('ip', ['-n', name, '-4', 'route', 'show']),
  ]);
  const found = (text: string, pattern: RegExp): string[][] =>
    text.split('\n').flatMap((line) => {
      const [, ...groups] = pattern.exec(line) ?? [];
      return groups.length === 0 ? [] : [groups];
    });
  const cidrs = new Map(
    found(routes, /^([0-9./]+) .*\bdev to-([0-9]+)\b/).map(([cidr = '', id = '']) => [id, cidr]),
  );
  return {
    addresses: found(addresses, /^\d+: vpc\s+inet ([0-9./]+)/).flat(),
    peers: found(links, /^\d+: to-([0-9]+)[@:]/).map(([id = '']) => ({
      id,
      cidr: cidrs.get(id) ?? null,
    })),
  };
}

/** The state LISTEN in /proc/net/tcp. */
const LISTEN = '0A';

async function listeners(name: string): Promise<NetworkSeen['listening']> {
  const lines = (await inside(name, ['cat', '/proc/net/tcp'])).split('\n').slice(1);
  return lines.flatMap((line) => {
    const [, local, , state] = line.trim().split(/\s+/);
    const [address, port] = local?.split(':') ?? [];
    if (state !== LISTEN || address === undefined || port === undefined) return [];
    const bytes = Buffer.from(address, 'hex').toReversed();
    return [{ address: bytes.join('.'), port: Number.parseInt(port, 16) }];
  });
}

/** Runs a program in a namespace. */
function inside(name: string, command: readonly string[]): Promise<string> {
  return run('nsenter', [`--net=${namespacePath(name)}`, '--', ...command]);
}

// ── making
// ─────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Makes the desired networks of an installation, and removes its others.
 *
 * @param home the installation's, by which its networks are found when it is gone
 * @param guard called with each, before services are in it
 * @returns the ids of VPCs whose network was missing
 */
export async function makeNetworks(
  prefix: string,
  home: string,
  specs: readonly VpcSpec[],
  guard: (name: string) => Promise<void>,
): Promise<string[]> {
  const there = (await namespaces()).filter((name) => vpcOf(prefix, name) !== null);
  const nameOf = ({ id }: { id: string }): string => namespaceOf(prefix, id);
  const renewed: string[] = [];
  for (const spec of specs) {
    const name = nameOf(spec);
    if (!there.includes(name)) {
      await run('ip', ['netns', 'add', name]);
      renewed.push(spec.id);
    }
    await make(name, spec, home);
    await guard(name);
  }
  await separate(prefix, specs);
  for (const name of there)
    if (!specs.some((spec) => nameOf(spec) === name)) await removeNamespace(name);
  for (const spec of specs) await joinPeers(prefix, spec, specs);
  return renewed;
}

/**
 * The settings of a network: forwarding between its bridge and its peers, of nothing that claims to
 * come from elsewhere; no IPv6.
 */
const SETTINGS = `cd /proc/sys/net
echo 1 > ipv4/ip_forward
echo 0 > ipv4/conf/all/send_redirects; echo 0 > ipv4/conf/all/accept_source_route
for f in ipv4/conf/*/rp_filter; do echo 1 > $f; done
if [ -d ipv6 ]; then
  echo 1 > ipv6/conf/all/disable_ipv6; echo 1 > ipv6/conf/default/disable_ipv6
fi`;

/** Makes what is missing in a namespace, and removes addresses that no service has any more. */
async function make(name: string, spec: VpcSpec, home: string): Promise<void> {
  const ip = (...args: string[]) => run('ip', ['-n', name, ...args]);
  const links = await ip('-o', 'link', 'show');
  if (!/^\d+: vpc:/m.test(links)) await ip('link', 'add', BRIDGE, 'type', 'bridge');
  await inside(name, ['sh', '-c', SETTINGS]);
  await ip('link', 'set', 'lo', 'up');
  // The installation that it belongs to; see strayNetworks.
  await ip('link', 'set', BRIDGE, 'up', 'alias', home);
  const cidr = trustedCidr(spec.cidr);
  const wanted = [addressAt(cidr, ROUTER_HOST), ...spec.addresses].map(
    (address) => `${address}/${cidr.bits}`,
  );
  const { addresses } = await observeNetwork(name);
  // The router speaks by the first address that is added. If that were removed, all others would go
  // too.
  for (const address of wanted.filter((one) => !addresses.includes(one)))
    await ip('addr', 'add', address, 'dev', BRIDGE);
  for (const address of addresses.filter((one) => !wanted.includes(one)))
    await ip('addr', 'del', address, 'dev', BRIDGE);
}

/**
 * Separates VPCs that are no longer peered. Connections between them are ended first, so that both
 * ends notice.
 */
async function separate(prefix: string, specs: readonly VpcSpec[]): Promise<void> {
  const parted: { name: string; peer: string; cidr: string | null }[] = [];
  for (const { id, peers } of specs) {
    const name = namespaceOf(prefix, id);
    for (const seen of (await observeNetwork(name)).peers)
      if (!peers.some((peer) => peer.id === seen.id))
        parted.push({ name, peer: seen.id, cidr: seen.cidr });
  }
  for (const { name, cidr } of parted) await endConnections(name, cidr);
  // The other end of a pair goes with it.
  for (const { name, peer } of parted)
    await run('ip', ['-n', name, 'link', 'del', `${LINK}${peer}`]).catch(() => undefined);
  for (const { name, cidr } of parted) await endConnections(name, cidr);
}

/**
 * Ends the connections that processes of a namespace have with a network. A kernel that cannot
 * leaves them without a way.
 */
async function endConnections(name: string, cidr: string | null): Promise<void> {
  if (cidr !== null) await run('ss', ['-N', name, '-K', '-t', 'dst', cidr]).catch(() => undefined);
}

/** Joins a VPC to those that it is peered with. */
async function joinPeers(prefix: string, spec: VpcSpec, specs: readonly VpcSpec[]): Promise<void> {
  const name = namespaceOf(prefix, spec.id);
  const own = addressAt(trustedCidr(spec.cidr), ROUTER_HOST);
  for (const peer of spec.peers) {
    // The other side may not exist yet: the next round connects it.
    if (!specs.some(({ id }) => id === peer.id)) continue;
    const [there, here] = [namespaceOf(prefix, peer.id), `${LINK}${peer.id}`];
    const { peers } = await observeNetwork(name);
    const seen = peers.find(({ id }) => id === peer.id);
    if (seen === undefined) {
      // The other end is the rest of an interrupted peering.
      await run('ip', ['-n', there, 'link', 'del', `${LINK}${spec.id}`]).catch(() => undefined);
      await run('ip', [
        '-n',
        name,
        'link',
        'add',
        here,
        'type',
        'veth',
        'peer',
        'name',
        `${LINK}${spec.id}`,
        'netns',
        there,
      ]);
    }
    if (seen?.cidr === peer.cidr) continue;
    await run('ip', ['-n', name, 'link', 'set', here, 'up']);
    await inside(name, ['sh', '-c', `echo 1 > /proc/sys/net/ipv4/conf/${here}/rp_filter`]);
    const router = addressAt(trustedCidr(peer.cidr), ROUTER_HOST);
    await run('ip', [
      '-n',
      name,
      'route',
      'replace',
      peer.cidr,
      'via',
      router,
      'dev',
      here,
      'onlink',
      'src',
      own,
    ]);
  }
}

async function removeNamespace(name: string): Promise<void> {
  await run('ip', ['netns', 'del', name]);
}

/** Removes all networks of an installation. */
export async function removeNetworks(prefix: string): Promise<void> {
  for (const name of await namespaces())
    if (vpcOf(prefix, name) !== null) await removeNamespace(name);
}

/** Networks of installations whose data is gone, each with where that was. Changes nothing. */
export async function strayNetworks(
  exists: (home: string) => Promise<boolean>,
): Promise<{ name: string; home: string }[]> {
  const stray: { name: string; home: string }[] = [];
  for (const name of (await namespaces()).filter((one) => ANY_NAME.test(one))) {
    const home =
      /\balias (.+)$/m
        .exec(await run('ip', ['-n', name, 'link', 'show', BRIDGE]).catch(() => ''))?.[1]
        ?.trim() ?? '';
    if (home === '' || !(await exists(home))) stray.push({ name, home });
  }
  return stray;
}
const ANY_NAME = /^howdah-[0-9a-f]{8}-[0-9]+$/;

/** @throws NotYet while the network of a listener is not there, Error when it cannot be had */
export async function assertPlace(
  { address, namespace }: Listener,
  { method, note }: NetworkAbility,
): Promise<void> {
  if (namespace === null) return;
  if (method === 'address')
    throw new Error(
      `it is in a VPC with a network of its own, which this machine cannot have now: ${note}`,
    );
  const there = await observeNetwork(namespace).catch(() => null);
  if (there?.addresses.some((one) => one.startsWith(`${address}/`)) !== true)
    throw new NotYet(`its address ${address} is not there yet`);
}
