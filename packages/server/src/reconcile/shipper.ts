/**
 * Sends the WAL of the services of a region to the repositories, a few services at a time. The
 * engine decides what is sent, and when a backup is due; a slow or dead repository delays nothing
 * but its own backups.
 */
import type { OffMachineState } from '../engine/off-machine.ts';
import type { Region } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import type { Store } from '../store/database.ts';
import { beginDueBackup } from './backups.ts';
import {
  listRepositories,
  servicesWithBackups,
  type ShippedService,
} from '../store/repositories.ts';

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
  if (repositories.length === 0 || 'missing' in region.engine.capabilities.offMachine) {
    shipper.known = new Map();
    return;
  }
  const waiting = await servicesWithBackups(store.db, region.code);
  const known: Known = new Map(repositories.map(({ id }) => [id, new Map()]));
  const work = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      await shipOne(shipper, next, known, closing);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  shipper.known = known;
}

async function shipOne(
  { store, region, log }: Shipper,
  { id, isDeleted, backup_retention_days: days }: ShippedService,
  known: Known,
  closing: AbortSignal,
): Promise<void> {
  try {
    const { states, isBackupDue } = await region.engine.offMachine.ship(id, days, closing);
    // Nobody waits for the backups of a deleted service, and it gets no new ones.
    if (isDeleted) return;
    if (isBackupDue) await beginDueBackup(store, id);
    for (const [repositoryId, state] of states) known.get(repositoryId)?.set(id, state);
  } catch (error) {
    if (!closing.aborted)
      log.warn({ service: id, err: error }, 'the backups of a service could not be sent');
  }
}
