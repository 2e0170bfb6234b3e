/** The composition root: config → store → engine → reconciler → API. The only file that knows all of them. */
import { randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { FastifyBaseLogger } from 'fastify';
import type { ClientConfig } from 'pg';
import { createApp } from './api/app.ts';
import type { Config } from './config.ts';
import { certificateHosts, createLocalEngine, LOOK_AGAIN_MS } from './engine/local/index.ts';
import { prepareMachine, type Machine } from './engine/local/machine.ts';
import { createMonitor } from './engine/local/monitor.ts';
import { findServer } from './engine/local/server.ts';
import { ensureStoreRunning, killStore, stopStore } from './engine/local/store-instance.ts';
import { createTemplates, type Templates } from './engine/local/templates.ts';
import { announceControl, apiUrl, ensureFirstKey, findControl, retractControl } from './installation.ts';
import { createReconciler, type Reconciler } from './reconcile/reconciler.ts';
import { createSampler } from './reconcile/sampler.ts';
import { keepSpares } from './reconcile/spares.ts';
import { createServices } from './services/services.ts';
import { LOCAL_REGION, type Region } from './services/regions.ts';
import { AlreadyRunning, openStore } from './store/database.ts';
import { insertRegion } from './store/services.ts';
import { openCertificateAuthority, type CertificateAuthority } from './tls.ts';

export { readConfig, ConfigError, SETTINGS, type Config, type SettingName } from './config.ts';
export { AlreadyRunning } from './store/database.ts';
export { findControl, readCredentials, credentialsPath, type Credentials } from './installation.ts';
export { openLog } from './log.ts';
export { audit } from './audit.ts';
export { doctor, type Finding } from './doctor.ts';
export { stopDatabases } from './engine/local/stop-databases.ts';
export { findProcess, signal, waitUntilGone } from './engine/local/processes.ts';

export type ControlPlane = {
  apiUrl: string;
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
export async function startControlPlane(config: Config, log: FastifyBaseLogger, progress: Progress): Promise<ControlPlane> {
  const timed = timer(progress);
  if ((await findControl(config.home)) !== null) throw new AlreadyRunning(`the control plane of ${config.home} runs already`);
  await mkdir(config.home, { recursive: true, mode: 0o755 });
  const [machine, authority] = await timed('look over the machine', () =>
    Promise.all([prepareMachine(config.home), openCertificateAuthority(join(config.home, 'ca'))]),
  );
  const closers: Closers = [];
  try {
    await assemble(config, { machine, authority }, log, timed, closers);
  } catch (error) {
    await closeAll(closers);
    throw error;
  }
  return { apiUrl: apiUrl(config), close: () => closeAll(closers) };
}

/** Whoever asked for a service connects as soon as it is ready: what can wait leaves the machine to that for a moment. */
const AFTER_FIRST_CONNECTION_MS = 200;

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
): Promise<void> {
  const templates = createTemplates(machine);
  const connection = await timed('start the records database', () => connectionOf(config, machine, templates));
  if (config.databaseUrl === null) closers.push(() => stopStore(machine));
  const store = await timed('open the records', () =>
    openStore(connection, (error) => log.warn({ err: error }, 'a connection to the records broke')),
  ).catch((error: unknown) => {
    if (config.databaseUrl !== null && !(error instanceof AlreadyRunning)) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new Error(`DATABASE_URL: the records in ${new URL(config.databaseUrl).host} cannot be opened: ${reason}`, { cause: error });
    }
    // The records are somebody's who is at work: not ours to stop.
    if (error instanceof AlreadyRunning) closers.length = 0;
    throw error;
  });
  closers.push(() => store.close());
  await ensureFirstKey(store, config);
  await insertRegion(store.db, LOCAL_REGION, config.portRange[0]);

  let reconciler: Reconciler | undefined;
  const engine = createLocalEngine({
    machine,
    templates,
    authority,
    listenAddress: config.host,
    certificateHosts: certificateHosts(config.publicHost, config.host),
    backups: config.backups,
    changed: (id) => reconciler?.poke(id),
  });
  const region: Region = { code: LOCAL_REGION, engine, portRange: config.portRange, host: config.publicHost };
  const sampler = createSampler(store, engine, log);
  const refill = (): void => {
    keepSpares(store, region, config.spares).catch((error: unknown) => log.warn({ err: error }, 'could not keep spares'));
  };
  reconciler = createReconciler({
    store,
    engine,
    log,
    lookAgainMs: LOOK_AGAIN_MS,
    undeleteMs: config.undeleteMs,
    onSettled: (service) => {
      if (service.project_id === null) return;
      setTimeout(() => {
        refill();
        if (service.reachable) sampler.sampleOne(service.id).catch((error: unknown) => log.warn({ err: error }, 'no first figures'));
      }, AFTER_FIRST_CONNECTION_MS).unref();
    },
  });
  const app = await createApp(
    {
      store,
      region,
      services: createServices(store, region),
      caPem: authority.certificatePem,
      notReady: async () =>
        await store.pool.query('select 1').then(
          () => null,
          () => 'the records cannot be reached',
        ),
    },
    log,
  );
  if (config.databaseUrl === null) {
    const watch = await watchStore(machine, templates, log);
    closers.push(() => watch.close());
  }
  closers.push(() => engine.close());
  await reconciler.start();
  closers.push(
    () => reconciler?.close(),
    () => sampler.close(),
    () => app.close(),
  );
  await timed('listen', () => app.listen({ host: config.host, port: config.port }));
  await announceControl(config);
  closers.push(() => retractControl(config.home));
  const prepared = engine.prepare().catch((error: unknown) => log.warn({ err: error }, 'could not prepare everything ahead'));
  // A template that is being made runs a server of its own: it is let finish.
  closers.push(
    () => engine.close(),
    () => prepared,
  );
  sampler.start();
  refill();
}

/** The records: in the database that was named, or in one of our own. */
async function connectionOf(config: Config, machine: Machine, templates: Templates): Promise<ClientConfig> {
  return config.databaseUrl === null ? ensureStoreRunning(machine, templates) : { connectionString: config.databaseUrl };
}

/** Starts our own metadata database again whenever it dies. */
async function watchStore(machine: Machine, templates: Templates, log: FastifyBaseLogger) {
  const id = `store-${randomUUID()}`;
  const isFrozen = async (): Promise<boolean> => (await findServer(machine.layout.store))?.postmaster.frozen === true;
  const monitor = createMonitor(() => void revive(), isFrozen);
  const revive = async (): Promise<void> => {
    try {
      log.warn({}, 'the records database died or hangs: starting it again');
      if (monitor.silentMs(id) !== null) await killStore(machine);
      await ensureStoreRunning(machine, templates);
      await monitor.connect(id, machine.layout.store, 5432);
    } catch (error) {
      log.error({ err: error }, 'the records database does not start; trying again');
      setTimeout(() => void revive(), 1000);
    }
  };
  await monitor.connect(id, machine.layout.store, 5432);
  return monitor;
}

function timer(progress: Progress) {
  return async <T>(step: string, work: () => Promise<T>): Promise<T> => {
    const begun = performance.now();
    const result = await work();
    progress(step, performance.now() - begun);
    return result;
  };
}
