/**
 * Builds the control plane: config → store → engines → reconcilers → API. The only file that knows
 * all parts.
 */
import { hostname } from 'node:os';
import { join } from 'node:path';
import { createApp } from './api/app.ts';
import type { ApiContext, HttpSettings } from './api/context.ts';
import { namesOf } from './api/hosts.ts';
import { openApiTls } from './api/tls.ts';
import { doctor } from './engine/local/admin/doctor.ts';
import { certificateHosts } from './engine/local/index.ts';
import { createTemplates } from './engine/local/postgres/templates.ts';
import { readControl } from './engine/local/admin/control-backup.ts';
import { createDispatcher } from './events/dispatcher.ts';
import { createEventHub } from './events/hub.ts';
import { blockListOf } from './events/outgoing-request.ts';
import { openSealer, type Sealer } from './lib/sealer.ts';
import { createPusher } from './export/pusher.ts';
import { ensureFirstKey } from './first-key.ts';
import { announceControl, retractControl } from './installation.ts';
import { openMetadataDatabase, watchStore } from './metadata-database.ts';
import { recordMetadata } from './metadata-record.ts';
import { createAlertSender } from './export/alert-sender.ts';
import { createAlerts } from './reconcile/alerts.ts';
import { createControlSaver } from './reconcile/control-saver.ts';
import { createHistory } from './reconcile/history.ts';
import { createKubernetesRegions } from './kubernetes-regions.ts';
import { openRegions } from './regions.ts';
import type { RepositorySource } from './repository/source.ts';
import { runRegion, type Control, type RunningRegion } from './run-region.ts';
import { createDurationCache } from './services/operations.ts';
import { ownProjects } from './services/peerings.ts';
import { programOrRefuse, useOf, openRepository } from './services/repositories.ts';
import { createLogReadLimit, createUsageReadLimit } from './services/read-limit.ts';
import type { Startup } from './startup.ts';
import type { Store } from './store/database.ts';
import { locationOf } from './domain/repository/storage.ts';
import type { PgBackRest } from './repository/repository.ts';
import { listRepositories } from './store/repositories.ts';
import type { Db } from './store/tables.ts';

type Api = Awaited<ReturnType<typeof createApi>>;

/**
 * Starts every part of the control plane.
 *
 * @returns the opened metadata database
 * @throws AlreadyRunning when another control plane uses it; ConfigError and Error with what is in
 *   the way
 */
export async function assemble(startup: Startup): Promise<Store> {
  const { config, machine, log, closers } = startup;
  const templates = machine === null ? null : createTemplates(machine);
  const store = await openMetadataDatabase(startup, templates);
  const project = await ensureFirstKey(store, config);
  if (config.localRegion) await recordMetadata(config.home, { place: config.databaseUrl, project });
  const sealer = await openSealer(join(config.home, 'secrets.key'));
  const repositories = await openRepositories(store.db, sealer, machine?.pgbackrest ?? null);
  const running = new Map<string, RunningRegion>();
  const regions = await openRegions(startup, { store, templates, repositories }, (code, id) =>
    running.get(code)?.lookAt(id),
  );
  const control: Control = { ...startup, store, regions, sealer };
  for (const region of regions.all) running.set(region.code, runRegion(control, region));
  const clusters = createKubernetesRegions(control, sealer, running);
  const api = await createApi(control, clusters, {
    sealer,
    program: () => programOrRefuse(repositories),
    refresh: async () => void (await repositories.list()),
    useOf: async (id) => useOf([...running.values()].map((region) => region.statesOf(id))),
  });
  if (config.databaseUrl === null && machine !== null && templates !== null) {
    const watch = await watchStore(machine, templates, log);
    closers.push(() => watch.close());
  }
  const local = [...running.values()];
  for (const region of local) await region.begin();
  await clusters.openAll();
  await serve(control, api);
  for (const region of local) region.beginTasks();
  if (machine !== null) saveControl(control, repositories, sealer);
  return store;
}

/** Sends the data of the control plane to the repositories. */
function saveControl(
  { config, store, log, rounds, closers }: Control,
  { program }: RepositorySource,
  sealer: Sealer,
): void {
  const saver = createControlSaver({
    store,
    log,
    rounds,
    program,
    open: (row) => openRepository(sealer, row),
    read: () => readControl(config.home, config.databaseUrl),
  });
  saver.start();
  closers.push(() => saver.close());
}

/** Begins to answer requests, and what goes on beside them for all regions. */
async function serve(
  control: Control,
  { app, events, dispatcher, pusher, alerts, alertSender }: Api,
): Promise<void> {
  const { config, log, rounds, timed, closers, store, standby } = control;
  const history = createHistory(store, log, rounds, config.historyMs);
  closers.push(
    () => dispatcher.close(),
    () => pusher.close(),
    () => alerts.close(),
    () => alertSender.close(),
    () => history.close(),
    () => app.close(),
    () => events.close(),
  );
  standby?.close();
  await timed('listen', () => app.listen({ host: config.host, port: config.port }));
  await announce(control);
  dispatcher.start();
  pusher.start();
  alerts.startLater();
  alertSender.start();
  history.start();
}

/** The HTTP server with all routes, and the parts that it alone uses. */
async function createApi(
  control: Control,
  clusters: ApiContext['clusters'],
  repositories: ApiContext['repositories'],
) {
  const { config, authority, log, rounds, closers, store, regions } = control;
  const hosts = certificateHosts(config.publicHost, config.host);
  const tls = config.tls.on ? await openApiTls(config.tls, hosts, authority) : null;
  const { sealer } = repositories;
  const allowed = blockListOf(config.webhookNetworks);
  const events = createEventHub(store);
  const dispatcher = createDispatcher({ store, log, rounds, sealer, allowed });
  const pusher = createPusher({ store, log, rounds, sealer, allowed });
  const alertSender = createAlertSender({ store, log, rounds, sealer, allowed });
  const certificateExpires = (): Date | null => tls?.expires() ?? null;
  const alerts = createAlerts({ store, regions, log, rounds, certificateExpires });
  const context: ApiContext = {
    store,
    regions,
    logReads: createLogReadLimit(),
    usageReads: createUsageReadLimit(),
    peeringProviders: [ownProjects],
    http: httpSettings(control, tls?.current() ?? null),
    durations: createDurationCache(store),
    webhooks: { sealer, allowed },
    repositories,
    clusters,
    events,
    rounds,
    caPem: authority.certificatePem,
    restoreWindowMs: config.restoreWindowMs,
    doctor: shared(async () =>
      config.localRegion ? doctor(config.home, config.uidRange, config.boundsCpu) : [],
    ),
    notReady: async () =>
      await store.pool.query('select 1').then(
        () => null,
        () => 'the metadata database cannot be reached',
      ),
  };
  const app = await createApp(context, log);
  if (tls !== null) closers.push(tls.keepCurrent(app.server, rounds));
  return { app, events, dispatcher, pusher, alerts, alertSender };
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
      'control.json cannot be written, and howdah down does not find this ' +
        'control plane; trying again',
    ),
  );
  closers.push(async () => {
    endAnnouncing();
    await retractControl(config.home);
  });
}

/** Callers that ask while an answer is on its way get that answer. */
function shared<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | null = null;
  return () =>
    (asked ??= ask().finally(() => {
      asked = null;
    }));
}

// The repositories of the metadata database, for the engines.

/** @param program the installed pgBackRest; null: there is none */
async function openRepositories(
  db: Db,
  sealer: Sealer,
  program: PgBackRest | null,
): Promise<RepositorySource> {
  let known: readonly string[] = [];
  const list: RepositorySource['list'] = async () => {
    const found = (await listRepositories(db)).flatMap((row) => {
      // Another installation may own it now.
      const repository = row.is_lost ? null : openRepository(sealer, row);
      return repository === null ? [] : [{ ...repository, retentionDays: row.retention_days }];
    });
    known = found.map(({ id }) => id);
    return found;
  };
  await list();
  const open: RepositorySource['open'] = (sealed) => {
    const kit = { id: 'kit', name: 'kit', sealed: Buffer.from(sealed, 'base64') };
    const found = openRepository(sealer, kit);
    // A kit has no name here: messages say where its repository is.
    return found === null ? null : { ...found, name: locationOf(found.storage) };
  };
  return { program, list, open, known: () => known };
}
