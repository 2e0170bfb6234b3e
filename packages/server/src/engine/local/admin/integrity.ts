/**
 * The part of the integrity check that is about this machine: compares processes, ports,
 * directories and limits with the metadata database, both ways.
 */
import { basename } from 'node:path';
import { quotedWord } from '@howdah/contract/shell';
import { ID_LENGTH } from '@howdah/contract';
import type { Config } from '../../../config.ts';
import { DEFAULT_UID_RANGE } from '../../../settings.ts';
import { findLack, tableOf } from '../host/egress.ts';
import { takeInventory, type Inventory } from './inventory.ts';
import { memberKey, partsOfKey } from '../host/layout.ts';
import { findLeftovers } from './leftovers.ts';
import { dataDirectories, type RegionSite } from './sites.ts';
import { groupPaths } from '../host/groups.ts';
import type { Site } from '../host/machine-record.ts';
import { markerOf } from '../host/marker.ts';
import { memberName, nodeName } from '../../postgres/replication/replication-conf.ts';
import { findControl } from '../../../installation.ts';
import { settledServices, type Expected } from '../../../store/integrity.ts';
import { addressAt, ROUTER_HOST, trustedCidr } from '../../../lib/cidr.ts';

/** The two sides: the metadata database before and after, and the machine in between. */
type Facts = {
  readonly before: Expected;
  readonly after: Expected;
  readonly found: Inventory;
  /**
   * Services whose status did not change meanwhile and is not transitional; the next check covers
   * the others.
   */
  readonly settled: readonly ServiceFacts[];
  readonly settledIds: ReadonlySet<string>;
  readonly knownIds: ReadonlySet<string>;
  /** Services that were changing. */
  readonly changing: ReadonlySet<string>;
  readonly running: readonly ServiceFacts[];
  readonly paused: readonly ServiceFacts[];
};

/** A region on this machine, and what was found of it; null: its data is not there. */
type RegionInventory = RegionSite & { inventory: Inventory | null };

/** Inspects the regions on this machine. Changes nothing. */
export async function takeInventories(sites: readonly RegionSite[]): Promise<RegionInventory[]> {
  return Promise.all(
    sites.map(async (region) => ({
      ...region,
      inventory: region.site === null ? null : await takeInventory(region.site),
    })),
  );
}

/**
 * @param before the metadata database before the inventories were taken @param after that of then
 * @returns a sentence for each contradiction
 */
export async function machineAmiss(
  home: string,
  regions: readonly RegionInventory[],
  before: Expected,
  after: Expected,
): Promise<string[]> {
  const problems = await Promise.all(
    regions.map(async (region) => {
      const [earlier, later] = [inRegion(before, region.code), inRegion(after, region.code)];
      if (region.site === null || region.inventory === null) return missingData(region, later);
      return regionAmiss(home, region.site, compare(earlier, later, region.inventory));
    }),
  );
  return problems.flat();
}

/** The part of the metadata database that is about one region. */
function inRegion(expected: Expected, code: string): Expected {
  return {
    ...expected,
    services: expected.services.filter(({ region }) => region === code),
    moved: expected.moved.filter(({ region }) => region === code),
    copied: expected.copied.filter(({ region }) => region === code),
    vpcs: expected.vpcs.filter(({ region }) => region === code),
  };
}

function missingData({ code, directory }: RegionSite, { services }: Expected): string[] {
  return services.length === 0
    ? []
    : [`region ${code} has services, and their data is not in ${directory}: mount its disk`];
}

/** The contradictions of one region. */
async function regionAmiss(home: string, site: Site, facts: Facts): Promise<string[]> {
  const { before, after, found, settled, changing } = facts;
  return [
    ...unknownServices(facts, site),
    ...copiesAmiss(before, after, found, site),
    ...groupsAmiss(facts, site),
    ...(await filterAmiss(home, site, found)),
    ...found.leftovers
      .filter((path) => !changing.has(basename(path).slice(0, ID_LENGTH)))
      .map((path) => `left over: ${path}`),
    ...processesAmiss(facts),
    ...movedAmiss(before, after, found),
    ...portsAmiss(facts),
    ...writersAmiss(before, settled, found),
    ...slotsAmiss(before, after, changing, found),
    ...poolersAmiss(settled, found),
    ...networksAmiss(before.vpcs, after.vpcs, found, site),
    ...listenersAmiss(settled, found),
    ...setsAmiss(settled, found),
    ...found.misowned
      .filter(({ id }) => facts.settledIds.has(id))
      .map(({ id, what }) => `service ${id}: ${what}`),
    ...[...new Set(found.processes)]
      .filter((key) => found.processes.filter((process) => process === key).length > 1)
      .map((key) => `${key} has more than one server`),
  ];
}

function compare(before: Expected, after: Expected, found: Inventory): Facts {
  const settled = settledServices(before, after);
  const settledIds = new Set(settled.map(({ id }) => id));
  const all = [before.services, after.services, before.moved, after.moved].flat();
  const knownIds = new Set(all.map(({ id }) => id));
  const changing = new Set([
    ...[...before.copied, ...after.copied].map(({ id }) => id),
    ...[...knownIds].filter((id) => !settledIds.has(id)),
    ...before.verifying,
    ...after.verifying,
  ]);
  const running = settled.filter(({ status }) => status === 'READY');
  const paused = settled.filter(({ status }) => status === 'PAUSED');
  return { before, after, found, settled, settledIds, knownIds, changing, running, paused };
}

/** Directories and processes of services that the metadata database does not know. */
function unknownServices({ knownIds, found }: Facts, { layout }: Site): string[] {
  const unknown = (kind: string, ids: readonly string[], remedyOf = (_id: string) => '') =>
    ids
      .filter((id) => !knownIds.has(id))
      .map((id) => `${kind} of ${id}, which the metadata database does not know${remedyOf(id)}`);
  return [
    ...unknown(
      'directory',
      found.directories,
      (id) => `: howdah adopt ${quotedWord(layout.service(id).root)} makes it a service again`,
    ),
    ...unknown('process', found.processes.map(serviceOf)),
    ...found.daemons.flatMap(({ id, name }) => unknown(name, [id])),
  ];
}

/** Servers that are missing, or that must not run, and services without a directory. */
function processesAmiss({ after, found, settled, settledIds, running, paused }: Facts): string[] {
  const ids = new Set(found.processes.map(serviceOf));
  const known = new Set(
    after.services.flatMap((service) =>
      service.servers.length === 0
        ? [service.id]
        : service.servers.map(({ n }) => memberKey(service.id, n)),
    ),
  );
  return [
    ...running
      .filter(({ id, asleep }) => !asleep && !ids.has(id))
      .map(({ id }) => `service ${id} is READY and has no process`),
    ...paused
      .filter(({ id }) => ids.has(id))
      .map(({ id }) => `service ${id} is PAUSED and has a process`),
    ...found.processes
      .filter((key) => settledIds.has(serviceOf(key)) && !known.has(key))
      .map((key) => `server ${key} belongs to no member of its service`),
    ...settled
      .filter(
        ({ id, provisioning }) =>
          !provisioning && !found.directories.includes(id) && !found.copies.includes(id),
      )
      .map(({ id }) => `service ${id} has no directory`),
  ];
}

/** Ports that are closed or open and must not be. */
function portsAmiss({ after, found, settled, running, paused }: Facts): string[] {
  const isOpen = hearing(found);
  const reserved = new Set(
    after.services.flatMap(({ port, servers }) => [port, ...servers.map((server) => server.port)]),
  );
  return [
    ...running
      .filter((service) => !isOpen(service, service.port))
      .map(({ id, port }) => `service ${id} is READY and nothing listens on its port ${port}`),
    ...paused
      .filter((service) => isOpen(service, service.port))
      .map(({ id, port }) => `service ${id} is PAUSED and something listens on its port ${port}`),
    ...found.processPorts
      .filter((port) => !reserved.has(port))
      .map((port) => `a server listens on port ${port}, which belongs to no service`),
    ...settled
      .filter(({ port, vpcAddress }) => vpcAddress !== null && found.ports.includes(port))
      .map(
        ({ id, port, vpcId }) =>
          `service ${id} is in VPC ${vpcId} and something listens on its public port ${port}`,
      ),
  ];
}

/**
 * Lists what killed programs and removed installations, also those of other users, have left on the
 * machine. Changes nothing.
 *
 * @returns a sentence for each, with the command that removes it
 */
export async function checkMachine(
  config: Pick<Config, 'home'> & Partial<Pick<Config, 'uidRange'>>,
): Promise<string[]> {
  const leftovers = await findLeftovers(
    await dataDirectories(config.home),
    config.uidRange ?? DEFAULT_UID_RANGE,
  );
  return leftovers.map(({ found, remedy }) => `${found}: ${remedy}`);
}

/** The cgroups of services that are gone. */
function groupsAmiss({ knownIds, changing, found }: Facts, { limits }: Site): string[] {
  return found.groups
    .filter((key) => !knownIds.has(serviceOf(key)) && !changing.has(serviceOf(key)))
    .map((key) => {
      const what = `cgroup of ${key}, which the metadata database does not know`;
      return found.processes.includes(key)
        ? what
        : `${what}: rmdir ${groupPaths(limits, key).join(' ')}`;
    });
}

/** Rules that the packet filter of a running installation lacks. */
async function filterAmiss(
  home: string,
  { layout, networkPrefix }: Site,
  { directories }: Inventory,
): Promise<string[]> {
  const control = await findControl(home);
  if (control === null) return [];
  const uids = directories.flatMap((id) => markerOf(layout.service(id))?.uid ?? []);
  const name = tableOf(networkPrefix);
  const lack = await findLack(name, control.pid, uids);
  return lack === null
    ? []
    : [
        `packet filter ${name} does not hold services back: ${lack}; ` +
          'howdah down, then howdah up sets it again',
      ];
}

/**
 * Servers that accept writes and must not: only a primary does, and no node of a read replica set.
 */
function writersAmiss(
  before: Expected,
  settled: readonly ServiceFacts[],
  { writers }: Inventory,
): string[] {
  const steady = settled.filter(({ id, primary }) =>
    before.services.some((earlier) => earlier.id === id && earlier.primary === primary),
  );
  return steady.flatMap(({ id, parentId, servers, primary }) => {
    const allowed = parentId === null ? memberKey(id, primary) : null;
    return servers
      .map(({ n }) => memberKey(id, n))
      .filter((key) => key !== allowed && writers.includes(key))
      .map(
        (key) =>
          `server ${key} accepts writes, ` +
          `where ${allowed === null ? 'no node may' : `only the primary, ${allowed}, may`}`,
      );
  });
}

/**
 * Replication slots that no standby needs: only a primary has slots, for its members and for the
 * nodes of read replica sets.
 */
function slotsAmiss(
  before: Expected,
  after: Expected,
  changing: ReadonlySet<string>,
  { slots }: Inventory,
): string[] {
  const kept = (expected: Expected, key: string): string[] => {
    const { id, n } = partsOfKey(key);
    const service = expected.services.find((candidate) => candidate.id === id);
    if (service === undefined || service.primary !== n || service.parentId !== null) return [];
    const sets = expected.services.filter(({ parentId }) => parentId === id);
    return [
      ...service.servers.filter((server) => server.n !== n).map((server) => memberName(server.n)),
      ...sets.flatMap((set) => set.servers.map((node) => nodeName(set.id, node.n))),
    ];
  };
  return slots
    .filter(
      ({ key, name }) => ![...changing].some((id) => serviceOf(key) === id || name.includes(id)),
    )
    .filter(
      ({ key, name }) => ![before, after].some((expected) => kept(expected, key).includes(name)),
    )
    .map(
      ({ key, name }) =>
        `server ${key} has a replication slot for ${name}, which does not follow it`,
    );
}

/** Gateways and nodes of read replica sets that do not run, or that run and must not. */
function setsAmiss(settled: readonly Expected['services'][number][], found: Inventory): string[] {
  return settled
    .filter(({ parentId, status }) => parentId !== null && status !== 'UNSTABLE')
    .flatMap(({ id, status, servers }) => {
      const gateways = found.daemons.filter(
        (daemon) => daemon.id === id && daemon.name === 'haproxy',
      ).length;
      const missing = servers
        .map(({ n }) => memberKey(id, n))
        .filter((key) => !found.processes.includes(key));
      return [
        ...(gateways === (status === 'READY' ? 1 : 0)
          ? []
          : [`read replica set ${id} is ${status} and ${gateways} of its gateway run`]),
        ...(status === 'READY'
          ? missing.map((key) => `server ${key} of read replica set ${id} does not run`)
          : []),
      ];
    });
}

function serviceOf(key: string): string {
  return partsOfKey(key).id;
}

/** Connection poolers that do not run, or that run and must not. */
function poolersAmiss(settled: readonly ServiceFacts[], found: Inventory): string[] {
  const isOpen = hearing(found);
  return settled
    .filter(({ status }) => status !== 'UNSTABLE')
    .flatMap((service) => {
      const { id, status, pooler, poolerPort } = service;
      const count = found.daemons.filter(
        (daemon) => daemon.id === id && daemon.name === 'pooler',
      ).length;
      const listening = poolerPort !== null && isOpen(service, poolerPort);
      const wanted = pooler && status === 'READY';
      return [
        ...(count === (wanted ? 1 : 0)
          ? []
          : [
              `service ${id} is ${status} ${pooler ? 'with' : 'without'} a pooler, ` +
                `and ${count} of it run`,
            ]),
        ...(wanted && !listening
          ? [`service ${id} is READY and nothing listens on its pooler's port ${poolerPort}`]
          : []),
        ...(!wanted && listening
          ? [
              `something listens on port ${poolerPort}, the pooler's of service ` +
                `${id}, which must not run`,
            ]
          : []),
      ];
    });
}

type ServiceFacts = Expected['services'][number];

/**
 * Whether something listens for a service on a port: in its VPC, if that is a network of its own,
 * else on the machine.
 */
function hearing(found: Inventory): (service: ServiceFacts, port: number) => boolean {
  return ({ vpcId, vpcAddress }, port) => {
    if (vpcAddress === null) return found.ports.includes(port);
    const network = found.networks.find((candidate) => candidate.vpcId === vpcId);
    return (
      network?.listening.some((one) => one.address === vpcAddress && one.port === port) === true
    );
  };
}

// The part of the integrity check of a machine that is about moves between regions.

/** Servers of services that have moved away: they would accept writes that nobody has then. */
export function movedAmiss(
  before: Pick<Expected, 'moved'>,
  after: Pick<Expected, 'moved'>,
  { processes }: Pick<Inventory, 'processes'>,
): string[] {
  const moved = after.moved.filter(({ id }) => before.moved.some((one) => one.id === id));
  return moved
    .filter(({ id }) => processes.some((key) => partsOfKey(key).id === id))
    .map(({ id }) => `service ${id} has moved to another region and has a process here`);
}

/** Copies of services that do not move here: of a move that was forgotten, or whose row is gone. */
export function copiesAmiss(
  before: Pick<Expected, 'copied' | 'services'>,
  after: Pick<Expected, 'copied' | 'services'>,
  { copies }: Pick<Inventory, 'copies'>,
  { layout }: Pick<Site, 'layout'>,
): string[] {
  const known = [before, after].flatMap(({ copied, services }) => [...copied, ...services]);
  return copies
    .filter((id) => !known.some((one) => one.id === id))
    .map(
      (id) =>
        `copy of ${id}, which does not move to this region: end what runs in ` +
        `${layout.copy(id).root}, and remove it`,
    );
}

// The part of the integrity check that compares the networks of VPCs with the metadata database.

/**
 * Networks of VPCs that are missing or unknown, or have other addresses or peers. A VPC that is
 * being changed is skipped.
 */
function networksAmiss(
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
          `network of VPC ${vpcId}, which the metadata database does not know: ` +
          `ip netns del ${site.networkPrefix}${vpcId}`,
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
              `VPC ${vpc.id} has the ${what} ${seen.join(', ') || 'none'} instead of ` +
                (wanted.join(', ') || 'none'),
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
function listenersAmiss(
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
        `something listens in VPC ${vpcId} at ${address}:${port}, ` +
          `a port of service ${service.id}, which is not in there`,
      ];
    }),
  );
}
