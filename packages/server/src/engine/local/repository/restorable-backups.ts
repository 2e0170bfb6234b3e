/** Which backups the lost data of a service is restored from: those of this machine first. */
import { existsSync } from 'node:fs';
import { RepositoryProblem } from '../../../repository/repository.ts';
import type { KeptRepository, RepositorySource } from '../../../repository/source.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import type { Restorable } from '../../engine.ts';
import { listSnapshots } from '../backup/snapshots.ts';
import { reach } from '../backup/window.ts';
import type { Machine } from '../host/machine-record.ts';
import { listBackups } from './stanza.ts';
import { offMachine, upgradeIn } from './state.ts';

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
