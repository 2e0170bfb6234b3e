/**
 * The engine that runs services as PostgreSQL servers on this machine. It observes a service,
 * decides, and applies one step; this file connects the parts.
 */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ADDONS_OF_TYPE, SERVICE_TYPES } from '@howdah/contract';
import { takeUsablePort, type Addresses, type ServiceSpec } from '../spec.ts';
import type {
  BackupKeeping,
  BeginStep,
  Engine,
  Networks,
  Seen,
  Storage,
  StorageGuard,
  Verdict,
} from '../engine.ts';
import { findAdoptable } from './adopt.ts';
import { removeOldAside } from './backup/aside-data.ts';
import { backupWarnings, holdingBackups, keepBackups, relieveArchive } from './backup/keeper.ts';
import { sweepCopies } from './backup/copy.ts';
import { verifyBackup } from './backup/verify.ts';
import { describeBackups } from './backup/window.ts';
import { capabilitiesOf, supports, whyNotConvertedTo } from './capabilities.ts';
import { removeTree } from './host/clone.ts';
import { findDaemon } from './host/daemon.ts';
import type { Machine } from './host/machine-record.ts';
import { readMarker } from './host/marker.ts';
import { reclaimUsers, ownerOf } from './host/users.ts';
import { convergeCopy } from './copy/converge.ts';
import { hasCopy } from './copy/copy-directory.ts';
import { createExtensions } from './extensions.ts';
import { createLeasing } from './leasing.ts';
import { createLocal, type Local, type LocalEngineOptions } from './local.ts';
import { createMoves } from './moves.ts';
import { makeNetworks } from './network/networks.ts';
import { createOffMachine } from './off-machine.ts';
import { findRestorable } from './repository/restorable-backups.ts';
import { createObserving } from './observe.ts';
import { installationFor, installationOf, majorOf, missingFor } from './postgres/installations.ts';
import { findServer, portIsFree } from './postgres/server.ts';
import type { Template } from './postgres/templates.ts';
import { extensionsOf } from '../../domain/postgres/extension-rules.ts';
import { removeService } from './remove.ts';
import { createSleeping } from './relays/sleep.ts';
import { createSql } from './sql.ts';
import { convergeCluster } from './topology/cluster/converge.ts';
import { watchFollowers } from './topology/cluster/round.ts';
import type { Topology } from './topology/context.ts';
import { primaryPaths, instanceNumbers } from './topology/instances.ts';
import { placeServers } from './topology/place-servers.ts';
import type { PlacedSpec } from '../postgres/decisions/placed-spec.ts';
import { createPlan } from './topology/plans.ts';
import { convergeSet } from './topology/read-replicas/converge.ts';
import { watchSets } from './topology/read-replicas/watch.ts';
import { convergeSingle } from './topology/single-server.ts';
import { tryUpgrade } from './topology/upgrade.ts';
import { withoutPaths } from './path-cleaner.ts';
import { removeWalOnFullDisk } from './backup/last-resort.ts';
import {
  enforceQuota,
  grownServices,
  quotaWarnings,
  takeRelief,
  usedBytesOf,
} from './host/quota.ts';
import { fullestDisk, keepReserve } from './host/reserve.ts';

export type { LocalEngineOptions } from './local.ts';
export { certificateHosts } from './network/listener.ts';

export function createLocalEngine(options: LocalEngineOptions): Engine {
  const local = createLocal(options);
  return withoutPaths(createFacets(local, options), local.machine.layout.root);
}

function createFacets(local: Local, options: LocalEngineOptions): Engine {
  const { machine, topology } = local;
  const shares = options.rounds.every('shares', () => machine.shares.shareOut());
  shares.startLater();
  const watches = [
    watchSets(topology, options.rounds),
    watchFollowers(topology, options.rounds),
    shares,
  ];
  const { backUp, ...offMachine } = createOffMachine(local, options.repositories);
  let isClosing = false;
  return {
    capabilities: capabilitiesOf(machine, options.gateway),
    lifecycle: {
      supports: (addons, major) => supports(machine, addons, major),
      // A paused service is cloned as it is.
      whyNotForked: () => null,
      begunAt: async (id) => (await readMarker(machine.layout.service(id)))?.began ?? null,
      majorOf: async (id) => {
        const marker = await readMarker(machine.layout.service(id));
        return marker === null ? null : majorOf(marker);
      },
      prepare: () => prepare(local, () => isClosing),
      runs: (id) => runs(local, id),
      plan: createPlan(machine.layout, machine.networks.method === 'bridge'),
      whyNoChanges: async () => null,
      converge: (spec, begin) => converge(topology, spec, begin),
      remove: (id, parent, begin) => removeService(local, id, parent, begin),
    },
    upgrades: {
      whyNotConverted: (addons, major) => whyNotConvertedTo(machine, addons, major),
      tryUpgrade: (spec, to, runStep, signal) =>
        tryUpgrade(topology.executor, spec, to, runStep, signal),
    },
    adoption: {
      find: (directory) => {
        const address = { host: options.endpointHost, listen: options.listenAddress };
        return findAdoptable(machine, address, directory);
      },
    },
    addresses: createAddresses(options),
    networks: createNetworks(machine, options),
    sql: createSql(local),
    extensions: createExtensions(local),
    observe: createObserving(local),
    backups: { ...createBackups(local, options), backUp },
    offMachine,
    storage: createStorage(local),
    storageGuard: createStorageGuard(local),
    leasing: createLeasing(local),
    moves: createMoves(local),
    sleep: createSleeping(local),
    simulation: null,
    close: async () => {
      isClosing = true;
      local.precloned.close();
      for (const watch of watches) void watch.close();
      topology.gateways.close();
      topology.monitor.close();
      local.reader.close();
      topology.executor.relays.end();
      topology.poolers.watch.close();
      topology.poolers.databases.close();
    },
  };
}

function createNetworks(
  { networks, networkPrefix, layout }: Machine,
  { egress }: Pick<LocalEngineOptions, 'egress'>,
): Networks | null {
  if (networks.method !== 'bridge') return null;
  return {
    converge: (specs) => makeNetworks(networkPrefix, layout.root, specs, egress.refuseIn),
  };
}

/** Endpoints at the host of the region, on ports that no other program on the machine holds. */
function createAddresses({
  endpointHost: host,
  listenAddress,
}: Pick<LocalEngineOptions, 'endpointHost' | 'listenAddress'>): Addresses {
  return {
    reserve: async (ports, { poolerOf }) => {
      const port = await takeUsablePort(ports, (one) => portIsFree(listenAddress, one));
      return { host: poolerOf ?? host, port };
    },
    isCurrent: (endpoint) => endpoint.host === host,
  };
}

/** Makes one step towards the desired state of a service. */
async function converge(
  topology: Topology,
  desired: ServiceSpec,
  begin: BeginStep,
): Promise<Verdict> {
  const { spec, lack } = await placeServers(topology, desired);
  // A read replica set has a gateway with all of its nodes, or is not begun.
  if (lack !== null && spec.set !== null) return lacking(lack, NOTHING);
  const verdict = await convergePlaced(topology, spec, begin);
  return lack !== null && verdict.outcome === 'settled' ? lacking(lack, verdict.seen) : verdict;
}

const NOTHING: Seen = { reachable: false, present: false, provisioned: false };

/** The verdict for a service that has all the servers for which there are ports. */
const lacking = (reason: string, seen: Seen): Verdict => ({
  did: null,
  detail: null,
  seen,
  outcome: 'failed',
  reason,
});

function convergePlaced(topology: Topology, spec: PlacedSpec, begin: BeginStep): Promise<Verdict> {
  if (spec.move?.as === 'copy' || hasCopy(topology.machine, spec.id))
    return convergeCopy(topology, spec, begin);
  if (spec.set !== null) return convergeSet(topology, spec, spec.set, begin);
  if (spec.ha !== null) return convergeCluster(topology, spec, spec.ha, begin);
  return convergeSingle(topology, spec, begin);
}

/** Whether the process that clients reach is there: of a set its gateway. */
async function runs({ machine, topology }: Local, id: string): Promise<boolean> {
  const primary = primaryPaths(machine, id);
  if ((await findServer(primary)) !== null) return true;
  const relay = await topology.executor.relays.see(id);
  if (relay?.state === 'asleep' || relay?.state === 'waking') return true;
  return !existsSync(primary.data) && (await findDaemon(machine.layout.gateway(id))) !== null;
}

/** Removes what a crash left half deleted, and makes ahead what a first create waits for. */
async function prepare(local: Local, isClosing: () => boolean): Promise<void> {
  const { machine, topology, precloned } = local;
  await sweepCopies(machine);
  if (machine.isolation.isolated) await reclaimUsers(machine.isolation.users);
  for (const entry of await readdir(machine.layout.trash))
    await removeTree(join(machine.layout.trash, entry), machine.cloneMethod);
  let usual: Template | null = null;
  for (const type of SERVICE_TYPES) {
    const addons = ADDONS_OF_TYPE[type];
    const installation = installationFor(machine.installations.usable, addons, null);
    if (installation === null || isClosing()) continue;
    const template = await topology.templates.ensure(installation, extensionsOf(addons));
    usual ??= template;
  }
  if (usual !== null) precloned.fillSoon(usual);
}

/** For a user without a repository. */
const UNPROTECTED =
  'these backups are on the disk of the service: they end with that disk, with this machine, and ' +
  'where the disk is full; a service that grows beyond its storage_gb by WAL ' +
  'loses moments of its ' +
  'growth, and after six hours those from before it. Only a repository protects from that: ' +
  'howdah repo add';

function createBackups(
  { machine, keeper, verifications }: Local,
  {
    backups: policy,
    repositories,
    asideMs,
  }: Pick<LocalEngineOptions, 'backups' | 'repositories' | 'asideMs'>,
): Omit<BackupKeeping, 'backUp'> {
  const installations = machine.installations.usable;
  return {
    describe: async (id) => {
      const problems = (await backupWarnings(keeper, id)).map(({ message }) => message);
      const described = await describeBackups(
        primaryPaths(machine, id),
        policy,
        problems.length === 0 ? null : problems.join('\n'),
      );
      const isOnlyHere = repositories.known().length === 0;
      return { ...described, ...(isOnlyHere ? { unprotected: UNPROTECTED } : {}) };
    },
    restorable: (id, upgrades) => findRestorable(machine, repositories, id, upgrades),
    keep: async (id, rules) => {
      await removeOldAside(machine, id, asideMs);
      return keepBackups(keeper, id, rules);
    },
    verify: async (spec, runStep, signal) => {
      const marker = await readMarker(machine.layout.service(spec.id));
      const installation = installationOf(installations, marker, spec);
      if (installation === null)
        throw new Error(missingFor(installations, spec.addons, spec.major));
      return holdingBackups(keeper, spec.id, () =>
        verifyBackup(verifications, spec, installation, runStep, signal),
      );
    },
  };
}

// The disk of the services: quotas, the reserve, and what is removed when nothing else helps.

function createStorage({ machine, meter }: Local): Storage {
  const { layout } = machine;
  return {
    disk: () => fullestDisk(layout),
    shared: (id) => {
      const paths = primaryPaths(machine, id);
      return meter.measure(paths.data, ownerOf(machine, paths));
    },
    usedBytes: (id) => usedBytesOf(primaryPaths(machine, id)),
  };
}

function createStorageGuard({ machine, quotas, keeper }: Local): StorageGuard {
  const { layout } = machine;
  let reserveAtStart = machine.reserve;
  return {
    keepQuota: async (id, { quotaBytes, pressure, removes }) => {
      const before = JSON.stringify(quotaWarnings(quotas, id));
      const stop = await enforceQuota(quotas, id, await instanceNumbers(machine, id), {
        quotaBytes,
        pressure,
        relieve: () => relieveArchive(keeper, id, { removes, quotaBytes }),
      });
      return {
        stop,
        changed: before !== JSON.stringify(quotaWarnings(quotas, id)),
        relief: takeRelief(quotas, id),
      };
    },
    keepReserve: async () => {
      const { did, heldBytes } = await keepReserve(layout.root, machine.tuning.reserveMaxBytes);
      const state = { did: did ?? reserveAtStart, heldBytes };
      reserveAtStart = null;
      const removedWal = machine.hasMetadata
        ? await removeWalOnFullDisk(layout, grownServices(quotas))
        : [];
      return { ...state, removedWal };
    },
  };
}
