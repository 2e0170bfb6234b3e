/**
 * The part of the integrity check that compares the networks of VPCs with the metadata database.
 */
import { addressAt, ROUTER_HOST, trustedCidr } from '../../../lib/cidr.ts';
import type { Expected } from '../../../store/integrity.ts';
import type { Site } from '../host/machine-record.ts';
import type { Inventory } from './inventory.ts';

/**
 * Networks of VPCs that are missing or unknown, or have other addresses or peers. A VPC that is
 * being changed is skipped.
 */
export function networksAmiss(
  before: Expected['vpcs'],
  vpcs: Expected['vpcs'],
  found: Inventory,
  site: Site,
): string[] {
  const { networks } = found;
  // An installation that separates VPCs by rules alone has no networks.
  const have = networks.length > 0 || vpcs.some(({ addresses }) => addresses.length > 0);
  const settled = vpcs.filter(
    ({ id, wanted, made, deleting }) =>
      have &&
      !deleting &&
      wanted === made &&
      before.some((one) => one.id === id && one.made === made),
  );
  const known = new Set([...before, ...vpcs].map(({ id }) => id));
  return [
    ...networks
      .filter(({ vpcId }) => !known.has(vpcId))
      .map(
        ({ vpcId }) =>
          `network of VPC ${vpcId}, which the metadata database does not know: ip netns del ${site.networkPrefix}${vpcId}`,
      ),
    ...settled.flatMap((vpc) => {
      const network = networks.find(({ vpcId }) => vpcId === vpc.id);
      if (network === undefined) return [`VPC ${vpc.id} has no network`];
      const cidr = trustedCidr(vpc.cidr);
      const addresses = [addressAt(cidr, ROUTER_HOST), ...vpc.addresses].map(
        (address) => `${address}/${cidr.bits}`,
      );
      const peers = vpc.peers.map((peer) => `${peer.id} by ${peer.cidr}`);
      const differs = (what: string, wanted: readonly string[], seen: readonly string[]) =>
        wanted.toSorted().join() === seen.toSorted().join()
          ? []
          : [
              `VPC ${vpc.id} has the ${what} ${seen.join(', ') || 'none'} instead of ${wanted.join(', ') || 'none'}`,
            ];
      return [
        ...differs('addresses', addresses, network.addresses),
        ...differs(
          'peers',
          peers,
          network.peers.map((peer) => `${peer.id} by ${peer.cidr ?? 'no route'}`),
        ),
      ];
    }),
  ];
}

/** Listeners of services in a VPC that these are not in. */
export function listenersAmiss(
  settled: readonly Expected['services'][number][],
  { networks }: Inventory,
): string[] {
  const owners = new Map(
    settled.flatMap((service) =>
      [
        service.port,
        service.poolerPort ?? service.port,
        ...service.servers.map(({ port }) => port),
      ].map((port) => [port, service] as const),
    ),
  );
  return networks.flatMap(({ vpcId, listening }) =>
    listening.flatMap(({ address, port }) => {
      const service = owners.get(port);
      if (service === undefined || (service.vpcId === vpcId && service.vpcAddress !== null))
        return [];
      return [
        `something listens in VPC ${vpcId} at ${address}:${port}, a port of service ${service.id}, which is not in there`,
      ];
    }),
  );
}
