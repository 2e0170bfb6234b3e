/** Runs a region: all that goes on beside requests, once for each region. */
import type { ServiceRow } from './domain/service/row.ts';
import type { Sealer } from './lib/sealer.ts';
import type { Region, Regions } from './engine/regions.ts';
import { createBackups, createShipper } from './reconcile/backups.ts';
import { createExpiry } from './reconcile/expiry.ts';
import { createLeasedDatabases } from './reconcile/leased-databases.ts';
import { createMaintenance } from './reconcile/maintenance.ts';
import { recordMajors } from './reconcile/majors.ts';
import { createReconciler } from './reconcile/reconciler.ts';
import { createSampler } from './reconcile/sampler.ts';
import { keepSpares } from './reconcile/spares.ts';
import { createStorageGuard } from './reconcile/storage.ts';
import { createTrials } from './reconcile/concurrent-operations.ts';
import { createSuspensions } from './reconcile/suspensions.ts';
import { createVerifier } from './reconcile/verifier.ts';
import { createVpcs } from './reconcile/vpcs.ts';
import { createWarmForks } from './reconcile/warm-forks.ts';
import { createWatch } from './reconcile/warnings.ts';
import type { Startup } from './startup.ts';
import type { Store } from './store/database.ts';

/** A client connects as soon as its service is READY: work that can wait leaves it the machine. */
const AFTER_FIRST_CONNECTION_MS = 200;
/** While other services are created, that work waits for them too, but not longer than this. */
const AFTER_OTHERS_MS = 5000;

/** The parts that all regions share. */
export type Control = Startup & Readonly<{ store: Store; regions: Regions; sealer: Sealer }>;

export type RunningRegion = ReturnType<typeof runRegion>;

export function runRegion(control: Control, region: Region) {
  const { config, rounds, store, closers } = control;
  const log =
    control.regions.all.length === 1 ? control.log : control.log.child({ region: region.code });
  const tasks = createTasks({ ...control, log }, region);
  const refill = (): void => {
    keepSpares(store, region, region.spares).catch((error: unknown) =>
      log.warn({ err: error }, 'could not keep spares'),
    );
  };
  const followUp: FollowUp = { log, tasks, refill, isCrowded: () => reconciler.isCrowded() };
  const reconciler = createReconciler({
    store,
    region,
    regions: control.regions,
    log,
    rounds,
    restoreWindowMs: config.restoreWindowMs,
    onSettled: (service) => {
      if (service.project_id === null) return;
      followUpSoon(followUp, service, Date.now());
    },
  });
  return {
    /** The state of each service of the region in a repository. */
    statesOf: (repositoryId: string) => tasks.shipper.statesOf(repositoryId),
    /** Asks for a service to be reconciled. */
    lookAt: reconciler.lookAt,
    /** Makes VPCs, and records what died while no control plane ran, before any client reads. */
    begin: async (): Promise<void> => {
      closers.push(() => region.engine.close());
      await recordMajors(store, region);
      const vpcs = createVpcs({ store, region, log, rounds, lookAtService: reconciler.lookAt });
      await vpcs.start();
      closers.push(() => vpcs.close());
      await reconciler.start();
      closers.push(
        () => reconciler.close(),
        ...Object.values(tasks).map((task) => () => task.close()),
      );
    },
    /** Begins the work that can wait until requests are answered. */
    beginTasks: (): void => {
      prepareAhead({ ...control, log }, region);
      for (const task of Object.values(tasks)) task.start();
      refill();
    },
  };
}

function createTasks({ config, store, log, rounds, sealer }: Control, region: Region) {
  const tools = { store, region, log, rounds };
  const warnings = createWatch(store, region, log, rounds);
  return {
    sampler: createSampler(store, region, log, rounds, warnings.look),
    warnings,
    expiry: createExpiry(store, region, log, rounds),
    suspensions: createSuspensions(tools),
    maintenance: createMaintenance(store, region, log, rounds, config.maintenanceWindow),
    storage: createStorageGuard(store, region, log, rounds, {
      warn: warnings.look,
      restoreWindowMs: config.restoreWindowMs,
    }),
    shipper: createShipper(tools),
    backups: createBackups(tools),
    verifier: createVerifier({
      ...tools,
      everyMs: config.backups.verifyEveryMs,
      sealer,
      ended: warnings.look,
    }),
    trials: createTrials(tools),
    leasedDatabases: createLeasedDatabases(store, region, log, rounds),
    warmForks: createWarmForks(store, region, log, rounds),
  };
}

type FollowUp = Readonly<{
  log: Control['log'];
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

/** Prepares the next create, and shows the warnings and the first samples of a settled service. */
function lookAfter({ log, tasks, refill }: FollowUp, service: ServiceRow): void {
  refill();
  // Missing nodes of a read replica set are a warning of its parent.
  if (service.parent_id !== null)
    tasks.warnings
      .look(service.parent_id)
      .catch((error: unknown) => log.warn({ err: error }, 'could not check for warnings'));
  if (service.reachable)
    tasks.sampler
      .sampleOne(service)
      .catch((error: unknown) => log.warn({ err: error }, 'could not take the first samples'));
}

/** Makes ahead, beside everything else, what the next creates need. */
function prepareAhead({ log, closers }: Control, { engine }: Region): void {
  const prepared = engine.lifecycle
    .prepare()
    .catch((error: unknown) => log.warn({ err: error }, 'could not prepare everything ahead'));
  // A stop waits for a template that is being made, since that runs a server of its own.
  closers.push(
    () => engine.close(),
    () => prepared,
  );
}
