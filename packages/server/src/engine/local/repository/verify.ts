/**
 * Verifies the backups of a service in a repository: the newest one is fetched with its WAL into a
 * copy, restored there, checked and removed. Nothing of the service on this machine is used.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isPassing } from '../../../repository/problem.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import { lostSecondsOf, type OffMachineVerification } from '../../off-machine.ts';
import type { Verified } from '../../restored-backup.ts';
import type { RunStep } from '../../run-step.ts';
import type { ServiceSpec } from '../../spec.ts';
import { copyPaths, discardCopy, killCopy, sweepCopies } from '../backup/copy.ts';
import { listSnapshots } from '../backup/snapshots.ts';
import { placeOf, restoreAndCheck, type Verifications } from '../backup/verify.ts';
import { memberKey } from '../host/layout.ts';
import { ownerOf } from '../host/users.ts';
import type { Installation } from '../postgres/installations.ts';
import { makeInstanceDirectories } from '../postgres/server.ts';
import { positionOfWalFile } from '../../postgres/data/wal-files.ts';
import { fetchBackup } from './fetch.ts';
import { changeState, type Shipment } from './ship.ts';
import type { ShipState } from './state.ts';

/** How often a repository that does not answer is asked. */
const TRIES = 6;

/**
 * Verifies what a repository has of a service, and writes the result to its state.
 *
 * @throws the reason of `signal` when it is aborted; Error when there is no backup;
 *   RepositoryProblem when it does not answer, which says nothing of the backup
 */
export async function verifyInRepository(
  shipment: Shipment,
  verifications: Verifications,
  spec: ServiceSpec,
  installation: Installation,
  runStep: RunStep,
): Promise<Verified<OffMachineVerification>> {
  const { context, id, upgrade, repository, signal } = shipment;
  const { machine } = context;
  const primary = machine.layout.primaryOf(id);
  const owner = ownerOf(machine, machine.layout.member(id, primary));
  const copy = copyPaths(machine, id);
  await sweepCopies(machine);
  const { sent, safeToMs } = await changeState(shipment, async (state) =>
    whatWasSent(state, repository),
  );
  const begunMs = Date.now();
  // A caller that waits for the server of the copy gets an error; the rest is removed below.
  const interrupt = (): void => void killCopy(machine, copy).catch(() => undefined);
  signal.addEventListener('abort', interrupt);
  let dataBytes = 0;
  let label = '';
  try {
    await makeInstanceDirectories(owner, copy);
    const found = await restoreAndCheck(
      machine,
      {
        copy,
        fetch: async (show) => {
          const stanza = stanzaOf(id, upgrade);
          const fetched = await patiently(machine.tuning.verifyAgainMs, show, signal, () =>
            fetchBackup(context, stanza, repository, copy, owner, 'newest', show, signal),
          );
          dataBytes = fetched.dataBytes;
          label = fetched.label;
          const taken = new Date(fetched.snapshot.takenMs).toISOString();
          return `${repository.name}: backup of ${taken}`;
        },
        subject: async () => {
          const [snapshot] = await listSnapshots(copy);
          if (snapshot === undefined) throw new Error('the backup has no snapshot');
          const key = memberKey(id, primary);
          return { spec, installation, owner, key, paths: copy, copy, snapshot };
        },
        before: async () => ({ position: sent, isMarked: false, catalogs: null }),
        // The service has gone on since.
        comparesCatalogs: false,
        place: ({ snapshot }) => placeOf('repository', repository.name, label, snapshot.takenMs),
      },
      runStep,
      signal,
    );
    const verification = { ...found.verification, dataBytes, begunMs, safeToMs };
    await changeState(shipment, async (state) => {
      state.verification = verification;
    });
    const { restored } = found;
    return {
      verification,
      restored:
        restored === null ? null : { ...restored, rpo_seconds: lostSecondsOf(verification) },
    };
  } finally {
    signal.removeEventListener('abort', interrupt);
    await discardCopy(machine, copy);
  }
}

/**
 * Repeats a fetch, which goes on where it ended: pgBackRest 2.55 repeats requests, and gives up
 * when the content of an answer ends early or stays away, as that of a busy server does.
 */
async function patiently<T>(
  againMs: number,
  show: (line: string) => void,
  signal: AbortSignal,
  fetch: () => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await fetch();
    } catch (error) {
      if (!isPassing(error) || tries === TRIES) throw error;
      show(`${error.message}; trying again`);
      await sleep(againMs, undefined, { signal });
    }
  }
}

/** @throws Error without a backup */
function whatWasSent(
  { backups: [newest], run, safeToMs }: ShipState,
  { name }: Shipment['repository'],
): { sent: bigint; safeToMs: number | null } {
  if (newest === undefined) throw new Error(`the repository ${name} has no backup of it yet`);
  // A snapshot has all of its own WAL.
  const isFollowed = run !== null && run.last.slice(8) >= newest.firstWal.slice(8);
  return { sent: positionOfWalFile(isFollowed ? run.last : newest.firstWal), safeToMs };
}
