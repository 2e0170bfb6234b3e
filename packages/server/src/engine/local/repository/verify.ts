/**
 * Verifies the backups of a service in a repository: the newest one is fetched with its WAL into a
 * copy, restored there, checked and removed. Nothing of the service on this machine is used.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { existsSync } from 'node:fs';
import { isPassing } from '../../../repository/problem.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import type { OffMachineVerification } from '../../off-machine.ts';
import type { RunStep } from '../../run-step.ts';
import type { ServiceSpec } from '../../spec.ts';
import { copyPaths, discardCopy, killCopy, sweepCopies } from '../backup/copy.ts';
import { listSnapshots } from '../backup/snapshots.ts';
import { restoreAndCheck, type Verifications } from '../backup/verify.ts';
import { memberKey } from '../host/layout.ts';
import { ownerOf } from '../host/users.ts';
import type { Installation } from '../postgres/installations.ts';
import { makeInstanceDirectories } from '../postgres/server.ts';
import { positionOfWalFile } from '../postgres/wal-files.ts';
import { fetchBackup } from './fetch.ts';
import { changeState, type Shipment } from './ship.ts';
import { type ShipState, offMachine, upgradeIn } from './state.ts';
import { RepositoryProblem } from '../../../repository/repository.ts';
import type { KeptRepository, RepositorySource } from '../../../repository/source.ts';
import type { Restorable } from '../../engine.ts';
import { reach } from '../backup/window.ts';
import type { Machine } from '../host/machine-record.ts';
import { listBackups } from './stanza.ts';

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
): Promise<OffMachineVerification> {
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
          const taken = new Date(fetched.snapshot.takenMs).toISOString();
          return `${repository.name}: backup of ${taken}`;
        },
        subject: async () => {
          const [snapshot] = await listSnapshots(copy);
          if (snapshot === undefined) throw new Error('the backup has no snapshot');
          const key = memberKey(id, primary);
          return { spec, installation, owner, key, paths: copy, copy, snapshot };
        },
        before: async () => ({ position: sent, catalogs: null }),
        // The service has gone on since.
        comparesCatalogs: false,
      },
      runStep,
      signal,
    );
    const verification = { ...found, dataBytes, begunMs, safeToMs };
    await changeState(shipment, async (state) => {
      state.verification = verification;
    });
    return verification;
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

// Which backups the lost data of a service is restored from: those of this machine first.

/** Seconds for each gigabyte that is fetched: docs/decisions/0045-off-machine-backups.md. */
const FETCH_SECONDS_PER_GB = 5;

/**
 * The backups that bring back the most; of equals those of this machine. An earlier upgrade counts
 * only if a later one has no backup of its data, and if nothing of the service is left here.
 *
 * @param upgrades the upgrades whose data it may be, the desired one first
 * @returns null: there is no backup
 * @throws RepositoryProblem when only a repository may have one, and it cannot be asked
 */
export async function findRestorable(
  machine: Machine,
  { program, list }: RepositorySource,
  id: string,
  upgrades: readonly (string | null)[],
): Promise<Restorable | null> {
  const paths = machine.layout.service(id);
  const isLost = !existsSync(paths.marker);
  const possible = isLost ? upgrades : [upgradeIn(paths)];
  const local = await findLocal(machine, id);
  if (local !== null && local.isWhole) return { ...local.found, isLost };
  const elsewhere: Restorable[] = [];
  let problem: RepositoryProblem | null = null;
  for (const repository of program === null ? [] : await list()) {
    try {
      const found =
        program === null ? null : await findIn(machine, program, repository, id, possible);
      if (found !== null) elsewhere.push({ ...found, isLost });
    } catch (error) {
      if (!(error instanceof RepositoryProblem)) throw error;
      problem = error;
    }
  }
  const [best] = [...(local === null ? [] : [{ ...local.found, isLost }]), ...elsewhere].toSorted(
    (a, b) => b.latestMs - a.latestMs,
  );
  if (best === undefined && problem !== null) throw problem;
  return best ?? null;
}

type Found = Omit<Restorable, 'isLost'>;

/** @returns isWhole: no WAL is missing after the newest snapshot */
async function findLocal(
  { layout }: Machine,
  id: string,
): Promise<{ found: Found; isWhole: boolean } | null> {
  const paths = layout.member(id, layout.primaryOf(id));
  const [newest] = await listSnapshots(paths);
  if (newest === undefined) return null;
  const { gap, latestMs } = await reach(paths, newest);
  return { found: { repository: null, latestMs, seconds: null }, isWhole: gap === null };
}

async function findIn(
  machine: Machine,
  program: NonNullable<RepositorySource['program']>,
  repository: KeptRepository,
  id: string,
  upgrades: readonly (string | null)[],
): Promise<Found | null> {
  for (const [index, upgrade] of upgrades.entries()) {
    const [newest] = await listBackups({ program }, stanzaOf(id, upgrade), repository);
    if (newest === undefined) continue;
    // The state is lost with the service: then it is not known how far its WAL reaches.
    const state = await offMachine({ machine }, id, repository.id);
    return {
      repository: { id: repository.id, name: repository.name },
      latestMs: Math.max(newest.takenMs, state?.safeToMs ?? 0),
      seconds: Math.ceil((newest.dataBytes / 1e9) * FETCH_SECONDS_PER_GB),
      ...(index === 0 ? {} : { before: { upgrade, major: newest.major } }),
    };
  }
  return null;
}
