/** Opens the regions of an installation. The only file that knows which engines there are. */
import { SIMULATED_REGION } from '@howdah/contract';
import type { Engine } from './engine/engine.ts';
import { createEgress } from './engine/local/host/egress.ts';
import { certificateHosts, createLocalEngine } from './engine/local/index.ts';
import type { Templates } from './engine/local/postgres/templates.ts';
import { gatewayCapability } from './engine/local/proxy/gateway.ts';
import { createModelEngine } from './engine/model/index.ts';
import { createRegions, type Region, type Regions } from './engine/regions.ts';
import { createPrimaryStore } from './reconcile/failovers.ts';
import { LOCAL_REGION } from './settings.ts';
import type { Startup } from './startup.ts';
import type { Store } from './store/database.ts';
import { insertRegion } from './store/regions.ts';
import { readDocuments, removeDocument, saveDocument } from './store/simulation.ts';

/**
 * @param templates those of the first region, which the metadata database is made from
 * @param changed called when something that the engine of a region watches changed by itself, with
 *   the region's code and the service's id
 */
export async function openRegions(
  startup: Startup,
  store: Store,
  templates: Templates,
  changed: (code: string, id: string) => void,
): Promise<Regions> {
  const { config } = startup;
  const engine = await openLocalEngine(startup, store, templates, (id) =>
    changed(LOCAL_REGION, id),
  );
  const local: Region = {
    code: LOCAL_REGION,
    engine,
    portRange: config.portRange,
    host: config.publicHost,
    singleProject: config.singleProject,
    spares: config.spares,
  };
  const simulated = config.simulatedRegion
    ? [simulatedRegion(startup, store, (id) => changed(SIMULATED_REGION, id))]
    : [];
  for (const region of [local, ...simulated])
    await insertRegion(store.db, region.code, region.portRange[0]);
  return createRegions(local, ...simulated);
}

/** A name that no resolver answers (RFC 2606): nothing listens on endpoints of simulated services. */
const NOWHERE = 'simulated.invalid';

/** The region whose services are no PostgreSQL. Its state is in the metadata database. */
function simulatedRegion(
  { config, log }: Startup,
  store: Store,
  changed: (id: string) => void,
): Region {
  const { db } = store;
  const engine = createModelEngine({
    seed: SIMULATED_REGION,
    primaries: createPrimaryStore(store, log),
    changed,
    policy: {
      windowMs: config.backups.windowMs,
      snapshotEveryMs: config.backups.snapshotEveryMs,
      failoverRestMs: config.failover.restMs,
    },
    readLagLimit: config.readLagLimit,
    store: {
      load: () => readDocuments(db, SIMULATED_REGION),
      save: (key, document) => saveDocument(db, SIMULATED_REGION, key, document),
      remove: (key) => removeDocument(db, SIMULATED_REGION, key),
    },
  });
  return {
    code: SIMULATED_REGION,
    engine,
    portRange: [1024, 65_535],
    host: NOWHERE,
    singleProject: false,
    // A create is as fast as a spare, and scripts count creates.
    spares: 0,
  };
}

/** The engine of this machine, for the data of one directory. */
async function openLocalEngine(
  { config, machine, authority, log, closers }: Startup,
  store: Store,
  templates: Templates,
  changed: (id: string) => void,
): Promise<Engine> {
  const egress = createEgress(machine, (error) =>
    log.warn(
      { err: error },
      'outgoing connections of services are not refused: the packet filter could not be set',
    ),
  );
  await egress.start();
  closers.push(() => Promise.resolve(egress.close()));
  return createLocalEngine({
    machine,
    templates,
    authority,
    listenAddress: config.host,
    certificateHosts: certificateHosts(config.publicHost, config.host),
    backups: config.backups,
    gateway: await gatewayCapability(),
    // So often that a server that is stopped right after an answer is noticed in time.
    heartbeat: { everyMs: config.heartbeatMs / 4, deadlineMs: (config.heartbeatMs * 3) / 4 },
    failover: config.failover,
    readLagLimit: config.readLagLimit,
    records: createPrimaryStore(store, log),
    egress,
    changed,
  });
}
