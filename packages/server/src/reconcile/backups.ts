/**
 * Performs the operations that back services up off the machine, one at a time in a region and
 * beside all other operations. An interrupted backup begins again. One by schedule is tried until
 * it works; one that somebody asked for ends with its first failure.
 */
import type { OperationRow } from '../domain/operation.ts';
import type { OffMachineBackups, OffMachineState, WantedBackup } from '../engine/off-machine.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import {
  beginOperation,
  besideUnderWay,
  endOperation,
  HOWDAH,
  progressOperation,
} from '../store/operations.ts';
import { listBeside, wasCancelled } from '../store/concurrent-operations.ts';
import { lockService } from '../store/services.ts';
import { createBesideRound, performBeside, type BesideTools } from './concurrent-operations.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import {
  listRepositories,
  servicesWithBackups,
  type ShippedService,
} from '../store/repositories.ts';

/** A backup by schedule that failed is tried again after a wait that doubles up to the second. */
const [FIRST_WAIT_MS, LONGEST_WAIT_MS] = [30_000, 1_800_000];
/** Somebody who cancels a backup by schedule has none of this service for this long. */
const AFTER_CANCEL_MS = 86_400_000;

export type BackupsOptions = BesideTools & Readonly<{ region: Region }>;

/** When a failed backup is tried again, by its operation. */
type Waits = Map<string, { untilMs: number; waitMs: number }>;

export function createBackups(options: BackupsOptions) {
  const waits: Waits = new Map();
  return createBesideRound(options, 'backups', (closing) => round(options, waits, closing));
}

/** Begins the backup of a service that is due, unless one is under way, or was cancelled. */
export async function beginDueBackup({ db }: Store, id: string): Promise<void> {
  await db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.deleting) return;
    if ((await besideUnderWay(tx, id, 'runBackup')) !== null) return;
    // Since an upgrade there is no backup of its data at all.
    const sinceMs = Date.now() - Date.parse(locked.service.upgraded?.at ?? '');
    const afterMs = sinceMs < AFTER_CANCEL_MS ? sinceMs : AFTER_CANCEL_MS;
    if (await wasCancelled(tx, id, 'runBackup', afterMs)) return;
    await beginOperation(tx, locked.service, 'runBackup', HOWDAH, null);
  });
}

async function round(options: BackupsOptions, waits: Waits, closing: AbortSignal): Promise<void> {
  const { store, region } = options;
  const waiting = await listBeside(store.db, region.code, 'runBackup');
  const isTime = ({ id }: OperationRow): boolean =>
    (waits.get(id)?.untilMs ?? -Infinity) <= performance.now();
  // Somebody waits for those that were asked for.
  const operation = waiting.find(({ requested_by: by }) => by !== HOWDAH) ?? waiting.find(isTime);
  for (const id of waits.keys()) if (!waiting.some((one) => one.id === id)) waits.delete(id);
  if (operation !== undefined) await backUp(options, waits, operation, closing);
}

const wantedBackup = ({ requested_by: by, request }: OperationRow): WantedBackup =>
  by === HOWDAH ? 'due' : request !== null && 'full' in request && request.full ? 'full' : 'incr';

async function backUp(
  options: BackupsOptions,
  waits: Waits,
  operation: OperationRow,
  closing: AbortSignal,
): Promise<void> {
  const { store, region, log } = options;
  const { id, requested_by: by } = operation;
  const result = await performBeside(
    options,
    operation,
    closing,
    async (service, runStep, signal) => {
      const { backUp } = region.engine.backups;
      if (backUp === null) return 'its region takes no backups';
      await backUp(service.id, wantedBackup(operation), runStep, signal);
      return null;
    },
  );
  if (result === null) return;
  const { problem, steps } = result;
  if (problem === null || by !== HOWDAH) {
    await endOperation(store.db, id, problem === null ? 'succeeded' : 'failed', problem);
    return;
  }
  const waitMs = Math.min((waits.get(id)?.waitMs ?? FIRST_WAIT_MS / 2) * 2, LONGEST_WAIT_MS);
  waits.set(id, { untilMs: performance.now() + waitMs, waitMs });
  // The backup may have been cancelled meanwhile.
  await progressOperation(store.db, id, steps, problem).catch((error: unknown) =>
    log.warn({ operation: id, err: error }, 'could not show why a backup failed'),
  );
}

// Sends the WAL of the services of a region to the repositories, a few services at a time. The
// engine decides what is sent, and when a backup is due; a slow or dead repository delays nothing
// but its own backups.

/** Services whose backups are sent at the same time. */
const AT_A_TIME = 2;
/** How long a stop waits for a transfer that was interrupted. */
const CLOSE_GRACE_MS = 5000;

export type ShipperOptions = { store: Store; region: Region; log: Log; rounds: Rounds };

/** The state in the repositories, by the ids of repository and service. */
type Known = Map<string, Map<string, OffMachineState>>;

type Shipper = Readonly<ShipperOptions> & {
  known: Known;
};

export function createShipper(options: ShipperOptions) {
  const shipper: Shipper = {
    ...options,
    known: new Map(),
  };
  const { rounds, log } = options;
  const round = rounds.every('shipping', (closing) => shipAll(shipper, closing), log);
  return {
    start: round.start,
    /** The state of each service of the region in a repository, as of the last round. */
    statesOf: (repositoryId: string): ReadonlyMap<string, OffMachineState> =>
      shipper.known.get(repositoryId) ?? new Map(),
    /** Interrupts what is being sent; the next start goes on with it. */
    close: () => round.close(CLOSE_GRACE_MS),
  };
}

async function shipAll(shipper: Shipper, closing: AbortSignal): Promise<void> {
  const { store, region } = shipper;
  const repositories = await listRepositories(store.db);
  const { offMachine, capabilities } = region.engine;
  if (repositories.length === 0 || offMachine === null || 'missing' in capabilities.offMachine) {
    shipper.known = new Map();
    return;
  }
  const waiting = await servicesWithBackups(store.db, region.code);
  const known: Known = new Map(repositories.map(({ id }) => [id, new Map()]));
  const work = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      await shipOne({ ...shipper, offMachine }, next, known, closing);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  shipper.known = known;
}

async function shipOne(
  { store, log, offMachine }: Shipper & Readonly<{ offMachine: OffMachineBackups }>,
  { id, isDeleted, backup_retention_days: days }: ShippedService,
  known: Known,
  closing: AbortSignal,
): Promise<void> {
  try {
    const { states, isBackupDue } = await offMachine.ship(id, days, closing);
    // Nobody waits for the backups of a deleted service, and it gets no new ones.
    if (isDeleted) return;
    if (isBackupDue) await beginDueBackup(store, id);
    for (const [repositoryId, state] of states) known.get(repositoryId)?.set(id, state);
  } catch (error) {
    if (!closing.aborted)
      log.warn({ service: id, err: error }, 'the backups of a service could not be sent');
  }
}
