/**
 * Performs the operations that verify backups, one at a time in a region and beside all other
 * operations, and begins those that are due. An interrupted verification begins again.
 */
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import type { OperationRow } from '../domain/operation/row.ts';
import { beginOperation, besideUnderWay, endOperation, HOWDAH } from '../store/operations.ts';
import { dueForVerification, listBeside } from '../store/beside.ts';
import { listRepositories } from '../store/repositories.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import { lockService } from '../store/services.ts';
import type { Log } from '../lib/log.ts';
import { createRounds, performBeside } from './beside.ts';

/** The time between two verifications of the backups of a service in the repositories. */
const REPOSITORY_EVERY_MS = 7 * 86_400_000;
/** Nothing is due more precisely than this. */
const DUE_EVERY_MS = 30_000;

export type VerifierOptions = {
  store: Store;
  region: Region;
  log: Log;
  /** The time between two verifications of a running service. */
  everyMs: number;
  /** Called with the id of a service after its verification, before the operation ends. */
  ended: (id: string) => Promise<void>;
};

type Verifier = Readonly<VerifierOptions> & { lookedForDueMs: number };

export function createVerifier(options: VerifierOptions) {
  const verifier: Verifier = { ...options, lookedForDueMs: -Infinity };
  return createRounds((closing) => round(verifier, closing), options.log);
}

async function round(verifier: Verifier, closing: AbortSignal): Promise<void> {
  const { store, region } = verifier;
  const waiting = await listBeside(store.db, region.code, 'verifyBackup');
  // Beside those of users, who could keep it from its turn by asking for one after the other.
  if (waiting.every(({ requested_by: by }) => by !== HOWDAH)) await beginDue(verifier);
  const [oldest] = waiting;
  if (oldest !== undefined) await verify(verifier, oldest, closing);
}

async function beginDue(verifier: Verifier): Promise<void> {
  if (performance.now() - verifier.lookedForDueMs < DUE_EVERY_MS) return;
  verifier.lookedForDueMs = performance.now();
  const { store, region, everyMs } = verifier;
  const { verifyBackup } = region.engine.capabilities.actions;
  const local = verifyBackup.possible
    ? await dueForVerification(store.db, region.code, everyMs, null)
    : null;
  const id = local ?? (await dueInRepositories(verifier));
  if (id === null) return;
  const request = local === null ? ({ repository: true } as const) : null;
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.deleting) return;
    if ((await besideUnderWay(tx, id, 'verifyBackup')) !== null) return;
    await beginOperation(tx, locked.service, 'verifyBackup', HOWDAH, null, request);
  });
  // There may be more.
  verifier.lookedForDueMs = -Infinity;
}

/** The service whose backups in the repositories are verified next; null: none is due. */
async function dueInRepositories({ store, region }: Verifier): Promise<string | null> {
  if ('missing' in region.engine.capabilities.offMachine) return null;
  const repositories = await listRepositories(store.db);
  const [oldest] = repositories;
  // The first backups in a new one take their time.
  if (oldest === undefined || Date.now() - oldest.created.getTime() < REPOSITORY_EVERY_MS / 7)
    return null;
  return dueForVerification(store.db, region.code, REPOSITORY_EVERY_MS, 'repository');
}

const isOfRepository = ({ request }: OperationRow): boolean =>
  request !== null && 'repository' in request;

async function verify(
  verifier: Verifier,
  operation: OperationRow,
  closing: AbortSignal,
): Promise<void> {
  const { store, region, ended } = verifier;
  const result = await performBeside(
    verifier,
    operation,
    closing,
    async (service, runStep, signal) => {
      const { backups, offMachine } = region.engine;
      const spec = serviceSpec(service);
      const problem = isOfRepository(operation)
        ? await offMachine.verify(spec, runStep, signal)
        : ((await backups.verify(spec, runStep, signal)).problem ?? null);
      await ended(service.id);
      return problem;
    },
  );
  if (result === null) return;
  const status = result.problem === null ? 'succeeded' : 'failed';
  await endOperation(store.db, operation.id, status, result.problem);
}
