/** The composition root: config → store → engine → reconciler → API. The only file that knows all of them. */
import { randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { FastifyBaseLogger } from 'fastify';
import type { ClientConfig } from 'pg';
import { createApp } from './api/app.ts';
import { namesOf } from './api/hosts.ts';
import { openApiTls } from './api/tls.ts';
import type { Config } from './config.ts';
import { doctor } from './engine/local/admin/doctor.ts';
import { certificateHosts, createLocalEngine, LOOK_AGAIN_MS } from './engine/local/index.ts';
import { createEgress } from './engine/local/host/egress.ts';
import { prepareMachine, type Machine } from './engine/local/host/machine.ts';
import { gatewayCapability } from './engine/local/proxy/gateway.ts';
import { createMonitor } from './engine/local/postgres/monitor.ts';
import { findServer } from './engine/local/postgres/server.ts';
import {
  ensureStoreRunning,
  killStore,
  stopStore,
} from './engine/local/postgres/store-instance.ts';
import { createTemplates, type Templates } from './engine/local/postgres/templates.ts';
import { createDispatcher } from './events/dispatcher.ts';
import { createEventHub } from './events/hub.ts';
import { blockListOf } from './events/networks.ts';
import { openSealer } from './events/sealer.ts';
import { consoleLink, ensureFirstKey } from './first-key.ts';
import { announceControl, apiUrl, findControl, retractControl } from './installation.ts';
import { createPrimaryStore } from './reconcile/failovers.ts';
import { createHistory } from './reconcile/history.ts';
import { createReconciler, type Reconciler } from './reconcile/reconciler.ts';
import { createSampler } from './reconcile/sampler.ts';
import { createStorageGuard } from './reconcile/storage.ts';
import { keepSpares } from './reconcile/spares.ts';
import { createVerifier } from './reconcile/verifier.ts';
import { createVpcs } from './reconcile/vpcs.ts';
import { createWatch } from './reconcile/warnings.ts';
import { createPeerings, ownProjects } from './services/peerings.ts';
import { createProjects } from './services/projects.ts';
import { createOperations } from './services/operations.ts';
import { createReplicaSetCalls } from './services/replica-sets.ts';
import { createLogReadLimit } from './services/read-limit.ts';
import { createVpcServices } from './services/vpcs.ts';
import { createWebhooks } from './services/webhooks.ts';
import { LOCAL_REGION, type Region } from './services/regions.ts';
import { AlreadyRunning } from './store/connections.ts';
import { openStore, type Store } from './store/database.ts';
import type { ServiceRow } from './domain/service/row.ts';
import { insertRegion } from './store/regions.ts';
import { openCertificateAuthority, type CertificateAuthority } from './lib/tls.ts';

export { readConfig, isInTheClear, ConfigError, type Config } from './config.ts';
export { AlreadyRunning } from './store/connections.ts';
export { findControl, readCredentials, credentialsPath, type Credentials } from './installation.ts';
export { openLog } from './lib/log.ts';
export { audit, auditMachine } from './engine/local/admin/audit.ts';
export { backupControl, restoreControl } from './engine/local/admin/control-backup.ts';
export { doctor } from './engine/local/admin/doctor.ts';
export { createStore, describeData, resizeStore } from './engine/local/admin/data-place.ts';
export { gigabytes } from './engine/local/host/image.ts';
export { stopDatabases } from './engine/local/admin/stop-databases.ts';
export { findProcess, signal, waitUntilGone } from './lib/processes.ts';

export type ControlPlane = {
  apiUrl: string;
  /** A new link that opens the web console once, with the key of `credentials.json`; its address where that key is no more. */
  consoleLink: () => Promise<string>;
  /** Ends the control plane. The databases go on. */
  close: () => Promise<void>;
};

/** Told of each part of the start, with its duration. */
export type Progress = (step: string, ms: number) => void;

/**
 * Starts the control plane of an installation and serves.
 *
 * @throws AlreadyRunning when one runs already; ConfigError and Error with what is in the way
 */
export async function startControlPlane(
  config: Config,
  log: FastifyBaseLogger,
  progress: Progress,
): Promise<ControlPlane> {
  const timed = timer(progress);
  if ((await findControl(config.home)) !== null)
    throw new AlreadyRunning(`the control plane of ${config.home} runs already`);
  await mkdir(config.home, { recursive: true, mode: 0o755 });
  const [machine, authority] = await timed('look over the machine', () =>
    Promise.all([
      prepareMachine(config.home, config.uidRange),
      openCertificateAuthority(join(config.home, 'ca')),
    ]),
  );
  const closers: Closers = [];
  const store = await assemble(config, { machine, authority }, log, timed, closers).catch(
    async (error: unknown) => {
      await closeAll(closers);
      throw error;
    },
  );
  return {
    apiUrl: apiUrl(config),
    consoleLink: () => linkOr(store, config, log),
    close: () => closeAll(closers),
  };
}

/** A link into the console; while the metadata database is away, the address that asks for a key. They come back, and serving goes on. */
async function linkOr(store: Store, config: Config, log: FastifyBaseLogger): Promise<string> {
  try {
    return await consoleLink(store, config);
  } catch (error) {
    log.warn({ err: error }, 'no link into the console');
    return new URL('/', apiUrl(config)).href;
  }
}

/** A client connects as soon as its service is ready: work that can wait leaves the machine to it for a moment. */
const AFTER_FIRST_CONNECTION_MS = 200;
/** And where many are made at the same time, to them: for so long at the most. */
const AFTER_OTHERS_MS = 5000;

type Ground = { machine: Machine; authority: CertificateAuthority };

/** What ends each part that has begun, in the order of beginning; a stop, or a start that fails, runs them backwards. */
type Closers = (() => Promise<unknown> | void)[];

async function closeAll(closers: Closers): Promise<void> {
  for (const close of closers.splice(0).toReversed()) await close();
}

async function assemble(
  config: Config,
  { machine, authority }: Ground,
  log: FastifyBaseLogger,
  timed: ReturnType<typeof timer>,
  closers: Closers,
): Promise<Store> {
  const templates = createTemplates(machine);
  const connection = await timed('start the metadata database', () =>
    connectionOf(config, machine, templates),
  );
  if (config.databaseUrl === null) closers.push(() => stopStore(machine));
  const store = await timed('open the metadata database', () =>
    openStore(connection, (error) =>
      log.warn({ err: error }, 'a connection to the metadata database broke'),
    ),
  ).catch((error: unknown) => {
    if (config.databaseUrl !== null && !(error instanceof AlreadyRunning)) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new Error(
        `DATABASE_URL: the metadata database in ${new URL(config.databaseUrl).host} cannot be opened: ${reason}`,
        {
          cause: error,
        },
      );
    }
    // The metadata database is somebody's who is at work: not ours to stop.
    if (error instanceof AlreadyRunning) closers.length = 0;
    throw error;
  });
  closers.push(() => store.close());
  await ensureFirstKey(store, config);
  await insertRegion(store.db, LOCAL_REGION, config.portRange[0]);

  const hosts = certificateHosts(config.publicHost, config.host);
  let reconciler: Reconciler | undefined;
  const egress = createEgress(machine, (error) =>
    log.warn(
      { err: error },
      'outgoing connections of services are not refused: the packet filter could not be set',
    ),
  );
  await egress.start();
  closers.push(() => Promise.resolve(egress.close()));
  const engine = createLocalEngine({
    machine,
    templates,
    authority,
    listenAddress: config.host,
    certificateHosts: hosts,
    backups: config.backups,
    gateway: await gatewayCapability(),
    // Asked so often that one which was stopped right after an answer is told of in time.
    heartbeat: { everyMs: config.heartbeatMs / 4, deadlineMs: (config.heartbeatMs * 3) / 4 },
    failover: config.failover,
    readLagLimit: config.readLagLimit,
    records: createPrimaryStore(store, log),
    egress,
    changed: (id) => reconciler?.wake(id),
  });
  const region: Region = {
    code: LOCAL_REGION,
    engine,
    portRange: config.portRange,
    host: config.publicHost,
    singleProject: config.singleProject,
  };
  const warnings = createWatch(store, engine, log);
  const sampler = createSampler(store, engine, log, warnings.look);
  const verifier = createVerifier({
    store,
    engine,
    log,
    everyMs: config.backups.verifyEveryMs,
    ended: warnings.look,
  });
  const storage = createStorageGuard(store, engine, log, warnings.look);
  const refill = (): void => {
    keepSpares(store, region, config.spares).catch((error: unknown) =>
      log.warn({ err: error }, 'could not keep spares'),
    );
  };
  reconciler = createReconciler({
    store,
    engine,
    log,
    lookAgainMs: LOOK_AGAIN_MS,
    undeleteMs: config.undeleteMs,
    onSettled: (service) => {
      if (service.project_id !== null) seeToItSoon(service, Date.now());
    },
  });
  const seeToItSoon = (service: ServiceRow, settledMs: number): void => {
    setTimeout(() => {
      if (reconciler.isCrowded() && Date.now() - settledMs < AFTER_OTHERS_MS)
        seeToItSoon(service, settledMs);
      else seeTo(service);
    }, AFTER_FIRST_CONNECTION_MS).unref();
  };
  const seeTo = (service: ServiceRow): void => {
    refill();
    // Which of its nodes are missing is said of the service that they follow.
    if (service.parent_id !== null)
      warnings
        .look(service.parent_id)
        .catch((error: unknown) => log.warn({ err: error }, 'could not look for what to warn of'));
    if (service.reachable)
      sampler
        .sampleOne(service)
        .catch((error: unknown) => log.warn({ err: error }, 'could not take the first samples'));
  };
  const apiTls = config.tls.on ? await openApiTls(config.tls, hosts, authority) : null;
  const sealer = await openSealer(join(config.home, 'secrets.key'));
  const allowed = blockListOf(config.webhookNetworks);
  const events = createEventHub(store);
  const dispatcher = createDispatcher({ store, log, sealer, allowed });
  const history = createHistory(store, log, config.historyMs);
  const app = await createApp(
    {
      store,
      region,
      logReads: createLogReadLimit(),
      vpcs: createVpcServices(store, region),
      peerings: createPeerings(store, [ownProjects]),
      projects: createProjects(store),
      http: {
        certificate: apiTls?.current() ?? null,
        trustedProxies: config.trustedProxies,
        names: [
          config.publicHost,
          config.host,
          hostname(),
          ...config.apiHosts,
          ...(apiTls === null ? [] : namesOf(apiTls.current().certificatePem)),
        ],
        connectionsPerAddress: config.connectionsPerAddress,
        failedKeysPerMinute: config.failedKeysPerMinute,
        changesPerDay: config.changesPerDay,
      },
      operations: createOperations(store),
      webhooks: createWebhooks(store, sealer, allowed),
      events,
      replicaSets: createReplicaSetCalls(store, region),
      caPem: authority.certificatePem,
      undeleteMs: config.undeleteMs,
      doctor: shared(() => doctor(config.home, config.uidRange)),
      notReady: async () =>
        await store.pool.query('select 1').then(
          () => null,
          () => 'the metadata database cannot be reached',
        ),
    },
    log,
  );
  if (apiTls !== null) closers.push(apiTls.keepCurrent(app.server, log));
  if (config.databaseUrl === null) {
    const watch = await watchStore(machine, templates, log);
    closers.push(() => watch.close());
  }
  closers.push(() => engine.close());
  const vpcs = createVpcs({ store, engine, log, wakeService: (id) => reconciler?.wake(id) });
  await vpcs.start();
  closers.push(() => vpcs.close());
  await reconciler.start();
  closers.push(
    () => reconciler?.close(),
    () => sampler.close(),
    () => warnings.close(),
    () => storage.close(),
    () => verifier.close(),
    () => dispatcher.close(),
    () => history.close(),
    () => app.close(),
    () => events.close(),
  );
  await timed('listen', () => app.listen({ host: config.host, port: config.port }));
  const endAnnouncing = await announceControl(config, (error) =>
    log.warn(
      { err: error },
      'control.json cannot be written, and howdah down does not find this control plane; trying again',
    ),
  );
  closers.push(async () => {
    endAnnouncing();
    await retractControl(config.home);
  });
  const prepared = engine
    .prepare()
    .catch((error: unknown) => log.warn({ err: error }, 'could not prepare everything ahead'));
  // A template that is being made runs a server of its own: it is let finish.
  closers.push(
    () => engine.close(),
    () => prepared,
  );
  sampler.start();
  warnings.start();
  storage.start();
  verifier.start();
  dispatcher.start();
  history.start();
  refill();
  return store;
}

/** Those who ask while an answer is on its way get that one. */
function shared<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | null = null;
  return () =>
    (asked ??= ask().finally(() => {
      asked = null;
    }));
}

/** The metadata database: in the database that was named, or in one of our own. */
async function connectionOf(
  config: Config,
  machine: Machine,
  templates: Templates,
): Promise<ClientConfig> {
  return config.databaseUrl === null
    ? ensureStoreRunning(machine, templates)
    : { connectionString: config.databaseUrl };
}

/** Starts our own metadata database again whenever it dies. */
async function watchStore(machine: Machine, templates: Templates, log: FastifyBaseLogger) {
  const id = `store-${randomUUID()}`;
  const isFrozen = async (): Promise<boolean> =>
    (await findServer(machine.layout.store))?.postmaster.frozen === true;
  const monitor = createMonitor(() => revive(), isFrozen);
  let closing = false;
  let timer: NodeJS.Timeout | undefined;
  let reviving: Promise<void> = Promise.resolve();
  const revive = (): void => {
    if (!closing) reviving = tryToRevive();
  };
  const tryToRevive = async (): Promise<void> => {
    try {
      log.warn({}, 'the metadata database died or hangs: starting it again');
      if (monitor.silentMs(id) !== null) await killStore(machine);
      await ensureStoreRunning(machine, templates);
      await monitor.connect(id, machine.layout.store, 5432);
    } catch (error) {
      log.error({ err: error }, 'the metadata database does not start; trying again');
      timer = setTimeout(revive, 1000);
    }
  };
  await monitor.connect(id, machine.layout.store, 5432);
  return {
    /** From here on it stays as it is: a stop ends it. */
    close: async (): Promise<void> => {
      closing = true;
      await reviving;
      clearTimeout(timer);
      monitor.close();
    },
  };
}

function timer(progress: Progress) {
  return async <T>(step: string, work: () => Promise<T>): Promise<T> => {
    const begun = performance.now();
    const result = await work();
    progress(step, performance.now() - begun);
    return result;
  };
}
