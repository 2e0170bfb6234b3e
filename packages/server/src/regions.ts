/** Opens the regions of an installation. The only file that knows which engines there are. */
import { stat } from 'node:fs/promises';
import { SIMULATED_REGION } from '@howdah/contract';
import type { Engine } from './engine/engine.ts';
import { createEgress } from './engine/local/host/egress.ts';
import { prepareMachine } from './engine/local/host/machine.ts';
import type { Machine } from './engine/local/host/machine-record.ts';
import { certificateHosts, createLocalEngine } from './engine/local/index.ts';
import { createTemplates, type Templates } from './engine/local/postgres/templates.ts';
import { gatewayCapability } from './engine/local/proxy/gateway.ts';
import { createModelEngine } from './engine/model/index.ts';
import type { ClusterRecords } from './engine/records.ts';
import { createRegions, type Region, type Regions } from './engine/regions.ts';
import { claimRegionDirectory, recordRegionPlaces } from './installation.ts';
import { createClusterRecords } from './reconcile/cluster-records.ts';
import type { RepositorySource } from './repository/source.ts';
import { LOCAL_REGION } from './settings.ts';
import type { Startup } from './startup.ts';
import type { Store } from './store/database.ts';
import { insertRegion, isInUse } from './store/regions.ts';
import { readDocuments, removeDocument, saveDocument } from './store/simulation.ts';

type Changed = (code: string, id: string) => void;

/** The parts that the regions share. */
type Shared = Readonly<{
  store: Store;
  templates: Templates | null;
  repositories: RepositorySource;
}>;

/**
 * @param shared `templates`: those of the first region, which the metadata database is made from;
 *   null: this machine runs no services
 * @param changed called when something that the engine of a region watches changed by itself, with
 *   the region's code and the service's id
 */
export async function openRegions(
  startup: Startup,
  { store, templates, repositories }: Shared,
  changed: Changed,
): Promise<Regions> {
  const { config, machine } = startup;
  const first = {
    code: LOCAL_REGION,
    aliases: config.regionAliases,
    portRange: config.portRange,
  };
  const local =
    machine === null || templates === null
      ? []
      : [
          await openLocalRegion(
            startup,
            store,
            first,
            { machine, templates, repositories },
            changed,
          ),
          ...(await openFurtherRegions(startup, machine, store, repositories, changed)),
        ];
  return createRegions(
    ...local,
    ...(config.simulatedRegion ? [await openSimulatedRegion(startup, store, changed)] : []),
  );
}

/** The regions in further directories of this machine. */
async function openFurtherRegions(
  startup: Startup,
  first: Machine,
  store: Store,
  repositories: RepositorySource,
  changed: Changed,
): Promise<Region[]> {
  const { config, timed } = startup;
  for (const further of config.regions)
    await claimRegionDirectory(config.home, further, await isInUse(store.db, further.code));
  await recordRegionPlaces(config.home, config.regions);
  const regions: Region[] = [];
  for (const further of config.regions) {
    const machine = await timed(`examine the region ${further.code}`, () =>
      prepareFurtherMachine(startup, first, further.directory),
    );
    const parts = { machine, templates: createTemplates(machine), repositories };
    regions.push(
      await openLocalRegion(startup, store, { ...further, aliases: [] }, parts, changed),
    );
  }
  return regions;
}

/** The metadata database may be on the same disk, even if the directory is another. */
async function prepareFurtherMachine(
  { config, tuning }: Startup,
  first: Machine,
  directory: string,
): Promise<Machine> {
  const machine = await prepareMachine(directory, config.uidRange, tuning, config.boundsCpu);
  const [here, there] = await Promise.all(
    [machine, first].map(({ layout }) => stat(layout.root, { bigint: true })),
  );
  return { ...machine, hasMetadata: here?.dev === there?.dev };
}

type LocalParts = Readonly<{
  machine: Machine;
  templates: Templates;
  repositories: RepositorySource;
}>;
type RegionPorts = Pick<Region, 'code' | 'portRange'>;
type RegionNames = RegionPorts & Pick<Region, 'aliases'>;

async function openLocalRegion(
  startup: Startup,
  store: Store,
  names: RegionNames,
  parts: LocalParts,
  changed: Changed,
): Promise<Region> {
  const { singleProject, spares } = startup.config;
  const { code, aliases, portRange } = names;
  await insertRegion(store.db, code, portRange[0]);
  const records = createClusterRecords(store, names, startup.log);
  const engine = await openLocalEngine(startup, records, parts, (id) => changed(code, id));
  return { code, aliases, engine, portRange, singleProject, spares };
}

const SIMULATED: RegionNames = {
  code: SIMULATED_REGION,
  aliases: [],
  portRange: [1024, 65_535],
};

/** The region whose services are no PostgreSQL. Its state is in the metadata database. */
async function openSimulatedRegion(
  { config, log }: Startup,
  store: Store,
  changed: Changed,
): Promise<Region> {
  const { db } = store;
  await insertRegion(db, SIMULATED_REGION, SIMULATED.portRange[0]);
  const engine = createModelEngine({
    seed: SIMULATED_REGION,
    records: createClusterRecords(store, SIMULATED, log),
    changed: (id) => changed(SIMULATED_REGION, id),
    policy: {
      windowMs: config.backups.windowMs,
      snapshotEveryMs: config.backups.snapshotEveryMs,
      failoverCooldownMs: config.failover.cooldownMs,
    },
    readLagLimit: config.readLagLimit,
    store: {
      load: () => readDocuments(db, SIMULATED_REGION),
      save: (key, document) => saveDocument(db, SIMULATED_REGION, key, document),
      remove: (key) => removeDocument(db, SIMULATED_REGION, key),
    },
  });
  return {
    ...SIMULATED,
    engine,
    singleProject: false,
    // A create is as fast as a spare, and scripts count creates.
    spares: 0,
  };
}

/** The engine of this machine, for the data of one directory. */
async function openLocalEngine(
  { config, authority, log, rounds, closers }: Startup,
  records: ClusterRecords,
  { machine, templates, repositories }: LocalParts,
  changed: (id: string) => void,
): Promise<Engine> {
  const egress = createEgress(machine, rounds, (error) =>
    log.warn(
      { err: error },
      'outgoing connections of services are not refused: the packet filter could not be set',
    ),
  );
  await egress.start();
  closers.push(() => egress.close());
  return createLocalEngine({
    machine,
    templates,
    authority,
    endpointHost: config.publicHost,
    listenAddress: config.host,
    certificateHosts: certificateHosts(config.publicHost, config.host),
    backups: config.backups,
    asideMs: config.restoreWindowMs,
    gateway: await gatewayCapability(),
    // So often that a server that is stopped right after an answer is noticed in time.
    heartbeat: { everyMs: config.heartbeatMs / 4, deadlineMs: (config.heartbeatMs * 3) / 4 },
    failover: config.failover,
    readLagLimit: config.readLagLimit,
    records,
    egress,
    rounds,
    repositories,
    changed,
  });
}
