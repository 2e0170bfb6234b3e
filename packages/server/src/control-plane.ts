/** Builds the control plane: config → store → engine → reconciler → API. The only file that knows all parts. */
import { hostname } from 'node:os';
import { join } from 'node:path';
import { createApp } from './api/app.ts';
import type { ApiContext, HttpSettings } from './api/context.ts';
import { namesOf } from './api/hosts.ts';
import { openApiTls } from './api/tls.ts';
import type { ServiceRow } from './domain/service/row.ts';
import { doctor } from './engine/local/admin/doctor.ts';
import { createEgress } from './engine/local/host/egress.ts';
import { certificateHosts, createLocalEngine } from './engine/local/index.ts';
import { createTemplates, type Templates } from './engine/local/postgres/templates.ts';
import { gatewayCapability } from './engine/local/proxy/gateway.ts';
import { createDispatcher } from './events/dispatcher.ts';
import { createEventHub } from './events/hub.ts';
import { blockListOf } from './events/networks.ts';
import { openSealer } from './events/sealer.ts';
import { ensureFirstKey } from './first-key.ts';
import { announceControl, retractControl } from './installation.ts';
import { openMetadataDatabase, watchStore } from './metadata-database.ts';
import { createPrimaryStore } from './reconcile/failovers.ts';
import { createHistory } from './reconcile/history.ts';
import { createReconciler, type Reconciler } from './reconcile/reconciler.ts';
import { createSampler } from './reconcile/sampler.ts';
import { keepSpares } from './reconcile/spares.ts';
import { createStorageGuard } from './reconcile/storage.ts';
import { createVerifier } from './reconcile/verifier.ts';
import { createVpcs } from './reconcile/vpcs.ts';
import { createWatch } from './reconcile/warnings.ts';
import { createDurationCache } from './services/operations.ts';
import { ownProjects } from './services/peerings.ts';
import { createLogReadLimit } from './services/read-limit.ts';
import { LOCAL_REGION, type Region } from './services/regions.ts';
import type { Startup } from './startup.ts';
import type { Store } from './store/database.ts';
import { insertRegion } from './store/regions.ts';

/** A client connects as soon as its service is READY: work that can wait leaves it the machine. */
const AFTER_FIRST_CONNECTION_MS = 200;
/** While other services are created, that work waits for them too, but not longer than this. */
const AFTER_OTHERS_MS = 5000;

/** The parts that act on the only region, this machine. */
type Control = Startup & Readonly<{ store: Store; region: Region }>;

/**
 * Starts every part of the control plane.
 *
 * @returns the opened metadata database
 * @throws AlreadyRunning when another control plane uses it; ConfigError and Error with what is in the way
 */
export async function assemble(startup: Startup): Promise<Store> {
  const { config, machine, log, timed, closers } = startup;
  const templates = createTemplates(machine);
  const store = await openMetadataDatabase(startup, templates);
  await ensureFirstKey(store, config);
  await insertRegion(store.db, LOCAL_REGION, config.portRange[0]);
  let reconciler: Reconciler | undefined;
  const region = await openRegion(startup, store, templates, (id) => reconciler?.wake(id));
  const { engine } = region;
  const control: Control = { ...startup, store, region };
  const tasks = createTasks(control);
  const refill = (): void => {
    keepSpares(store, region, config.spares).catch((error: unknown) =>
      log.warn({ err: error }, 'could not keep spares'),
    );
  };
  const isCrowded = (): boolean => reconciler?.isCrowded() === true;
  const followUp: FollowUp = { control, tasks, refill, isCrowded };
  reconciler = createReconciler({
    store,
    engine,
    log,
    restoreWindowMs: config.undeleteMs,
    onSettled: (service) => {
      if (service.project_id === null) return;
      followUpSoon(followUp, service, Date.now());
    },
  });
  const { app, events, dispatcher } = await createApi(control);
  if (config.databaseUrl === null) {
    const watch = await watchStore(machine, templates, log);
    closers.push(() => watch.close());
  }
  closers.push(() => engine.close());
  const vpcs = createVpcs({ store, engine, log, wakeService: (id) => reconciler?.wake(id) });
  await vpcs.start();
  closers.push(() => vpcs.close());
  await reconciler.start();
  const { sampler, warnings, storage, verifier, history } = tasks;
  const background = [sampler, warnings, storage, verifier, dispatcher, history];
  closers.push(
    () => reconciler?.close(),
    ...background.map((task) => () => task.close()),
    () => app.close(),
    () => events.close(),
  );
  await timed('listen', () => app.listen({ host: config.host, port: config.port }));
  await announce(startup);
  prepareAhead(control);
  for (const task of background) task.start();
  refill();
  return store;
}

/** The engine of this machine, as the only region. */
async function openRegion(
  { config, machine, authority, log, closers }: Startup,
  store: Store,
  templates: Templates,
  changed: (id: string) => void,
): Promise<Region> {
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
  return {
    code: LOCAL_REGION,
    engine,
    portRange: config.portRange,
    host: config.publicHost,
    singleProject: config.singleProject,
  };
}

function createTasks({ config, store, region: { engine }, log }: Control) {
  const warnings = createWatch(store, engine, log);
  return {
    warnings,
    sampler: createSampler(store, engine, log, warnings.look),
    storage: createStorageGuard(store, engine, log, warnings.look),
    verifier: createVerifier({
      store,
      engine,
      log,
      everyMs: config.backups.verifyEveryMs,
      ended: warnings.look,
    }),
    history: createHistory(store, log, config.historyMs),
  };
}

type FollowUp = Readonly<{
  control: Control;
  tasks: ReturnType<typeof createTasks>;
  refill: () => void;
  /** Whether so many services are reconciled that other work should wait. */
  isCrowded: () => boolean;
}>;

function followUpSoon(followUp: FollowUp, service: ServiceRow, settledMs: number): void {
  setTimeout(() => {
    if (followUp.isCrowded() && Date.now() - settledMs < AFTER_OTHERS_MS)
      followUpSoon(followUp, service, settledMs);
    else lookAfter(followUp, service);
  }, AFTER_FIRST_CONNECTION_MS).unref();
}

/** What a service that has settled needs at once: a spare for the next create, warnings, samples. */
function lookAfter({ control: { log }, tasks, refill }: FollowUp, service: ServiceRow): void {
  refill();
  // Missing nodes of a read replica set are a warning of its parent.
  if (service.parent_id !== null)
    tasks.warnings
      .look(service.parent_id)
      .catch((error: unknown) => log.warn({ err: error }, 'could not look for what to warn of'));
  if (service.reachable)
    tasks.sampler
      .sampleOne(service)
      .catch((error: unknown) => log.warn({ err: error }, 'could not take the first samples'));
}

/** The HTTP server with all routes, and the parts that it alone uses. */
async function createApi(control: Control) {
  const { config, authority, log, closers, store, region } = control;
  const hosts = certificateHosts(config.publicHost, config.host);
  const tls = config.tls.on ? await openApiTls(config.tls, hosts, authority) : null;
  const sealer = await openSealer(join(config.home, 'secrets.key'));
  const allowed = blockListOf(config.webhookNetworks);
  const events = createEventHub(store);
  const dispatcher = createDispatcher({ store, log, sealer, allowed });
  const context: ApiContext = {
    store,
    region,
    logReads: createLogReadLimit(),
    peeringProviders: [ownProjects],
    http: httpSettings(control, tls?.current() ?? null),
    durations: createDurationCache(store),
    webhooks: { sealer, allowed },
    events,
    caPem: authority.certificatePem,
    undeleteMs: config.undeleteMs,
    doctor: shared(() => doctor(config.home, config.uidRange)),
    notReady: async () =>
      await store.pool.query('select 1').then(
        () => null,
        () => 'the metadata database cannot be reached',
      ),
  };
  const app = await createApp(context, log);
  if (tls !== null) closers.push(tls.keepCurrent(app.server, log));
  return { app, events, dispatcher };
}

function httpSettings({ config }: Control, certificate: HttpSettings['certificate']): HttpSettings {
  return {
    certificate,
    trustedProxies: config.trustedProxies,
    names: [
      config.publicHost,
      config.host,
      hostname(),
      ...config.apiHosts,
      ...(certificate === null ? [] : namesOf(certificate.certificatePem)),
    ],
    connectionsPerAddress: config.connectionsPerAddress,
    failedKeysPerMinute: config.failedKeysPerMinute,
    changesPerDay: config.changesPerDay,
  };
}

/** Writes the files by which the command line finds this control plane. */
async function announce({ config, log, closers }: Startup): Promise<void> {
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
}

/** Makes ahead, beside everything else, what the next creates need. */
function prepareAhead({ region: { engine }, log, closers }: Control): void {
  const prepared = engine.lifecycle
    .prepare()
    .catch((error: unknown) => log.warn({ err: error }, 'could not prepare everything ahead'));
  // A stop waits for a template that is being made, since that runs a server of its own.
  closers.push(
    () => engine.close(),
    () => prepared,
  );
}

/** Callers that ask while an answer is on its way get that answer. */
function shared<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | null = null;
  return () =>
    (asked ??= ask().finally(() => {
      asked = null;
    }));
}
