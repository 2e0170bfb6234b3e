/**
 * Performs the operations that verify backups, one at a time in a region and beside all other
 * operations, and begins those that are due. An interrupted verification begins again.
 */
import type { Region } from '../engine/regions.ts';
import type { RestoredBackup, Verified } from '../engine/restored-backup.ts';
import type { OperationRow } from '../domain/operation.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { beginOperation, besideUnderWay, endOperation, HOWDAH } from '../store/operations.ts';
import { dueForVerification, listBeside } from '../store/concurrent-operations.ts';
import { listRepositories } from '../store/repositories.ts';
import { serviceSpec } from '../domain/service/spec.ts';
import { lockService } from '../store/services.ts';
import type { Round } from '../lib/rounds.ts';
import type { Sealer } from '../lib/sealer.ts';
import { issueCertificates } from './certificates.ts';
import { createBesideRound, performBeside, type BesideTools } from './concurrent-operations.ts';

/** The time between two verifications of the backups of a service in the repositories. */
const REPOSITORY_EVERY_MS = 7 * 86_400_000;

export type VerifierOptions = BesideTools &
  Readonly<{
    region: Region;
    /** The time between two verifications of a running service. */
    everyMs: number;
    /** Encrypts the key that signs certificates. */
    sealer: Sealer;
    /** Called with the id of a service after its verification, before the operation ends. */
    ended: (id: string) => Promise<void>;
  }>;

export function createVerifier(options: VerifierOptions) {
  const { rounds, log } = options;
  const due = rounds.every('dueVerifications', () => beginDue(options), log);
  const round = createBesideRound(options, 'verifications', (closing) =>
    verifyOldest(options, due, closing),
  );
  return {
    start: () => {
      due.start();
      round.start();
    },
    close: async () => {
      await due.close();
      await round.close();
    },
  };
}

async function verifyOldest(
  verifier: VerifierOptions,
  due: Round,
  closing: AbortSignal,
): Promise<void> {
  const { store, region } = verifier;
  const [oldest] = await listBeside(store.db, region.code, 'verifyBackup');
  if (oldest === undefined) return;
  await verify(verifier, oldest, closing);
  // There may be more that are due.
  if (oldest.requested_by === HOWDAH) await due.run();
}

async function beginDue(verifier: VerifierOptions): Promise<void> {
  const { store, region, everyMs } = verifier;
  // Beside those of users, who could keep it from its turn by asking for one after the other.
  const waiting = await listBeside(store.db, region.code, 'verifyBackup');
  if (waiting.some(({ requested_by: by }) => by === HOWDAH)) return;
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
}

/** The service whose backups in the repositories are verified next; null: none is due. */
async function dueInRepositories({ store, region }: VerifierOptions): Promise<string | null> {
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
  verifier: VerifierOptions,
  operation: OperationRow,
  closing: AbortSignal,
): Promise<void> {
  const { store, region, ended, sealer } = verifier;
  let verified: { service: ServiceRow; restored: readonly RestoredBackup[] } | null = null;
  const result = await performBeside(
    verifier,
    operation,
    closing,
    async (service, runStep, signal) => {
      const { backups, offMachine } = region.engine;
      const spec = serviceSpec(service);
      const isInRepository = isOfRepository(operation);
      if (isInRepository && offMachine === null) return 'no repository has backups of its region';
      const { problem, restored } =
        isInRepository && offMachine !== null
          ? await offMachine.verify(spec, runStep, signal)
          : resultOf(await backups.verify(spec, runStep, signal));
      await ended(service.id);
      verified = { service, restored };
      return problem;
    },
  );
  if (result === null) return;
  const { problem } = result;
  await store.db.transaction().execute(async (tx) => {
    // The service before its operation, as everywhere.
    await lockService(tx, operation.service_id);
    const status = problem === null ? 'succeeded' : 'failed';
    // A verification that was cancelled meanwhile has no certificate.
    if (!(await endOperation(tx, operation.id, status, problem)) || problem !== null) return;
    if (verified !== null)
      await issueCertificates(tx, sealer, operation, verified.service, verified.restored);
  });
}

const resultOf = ({ verification, restored }: Verified) => ({
  problem: verification.problem ?? null,
  restored: restored === null ? [] : [restored],
});
