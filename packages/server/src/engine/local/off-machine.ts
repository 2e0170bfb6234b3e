/** Backups of the services of this machine in repositories. */
import { isPassing } from '../../repository/problem.ts';
import { PGBACKREST_REMEDY } from '../../repository/pgbackrest.ts';
import { RepositoryProblem, type Repository } from '../../repository/repository.ts';
import { stanzaOf } from '../../repository/stanzas.ts';
import { openForeign, type RepositorySource } from '../../repository/source.ts';
import type { RestoredBackup } from '../restored-backup.ts';
import type { RunStep } from '../run-step.ts';
import type { BackUp, OffMachineBackups, OffMachineState } from '../off-machine.ts';
import type { ServiceSpec } from '../spec.ts';
import { readMarker } from './host/marker.ts';
import type { Local } from './local.ts';
import { type ShipContext, offMachine } from './repository/state.ts';
import { expire } from './repository/backup.ts';
import { ship, takeBackup } from './repository/ship.ts';
import { verifyInRepository } from './repository/verify.ts';
import { installationOf, missingFor } from './postgres/installations.ts';
import { listBackups } from './repository/stanza.ts';

const DAY_MS = 86_400_000;

/** The times of the last removals, by service and repository. */
type Expired = Map<string, number>;

/** Removes what is older than the retention from a repository. A failure is tried the next day. */
async function expireOnceADay(
  expired: Expired,
  context: ShipContext,
  id: string,
  upgrade: string | null,
  repository: Repository,
  retentionDays: number,
): Promise<void> {
  const key = `${stanzaOf(id, upgrade)} ${repository.id}`;
  if (performance.now() - (expired.get(key) ?? -Infinity) < DAY_MS) return;
  expired.set(key, performance.now());
  try {
    await expire(context, id, upgrade, repository, retentionDays);
  } catch (error) {
    // Old backups take space, and do no other harm.
    if (!(error instanceof RepositoryProblem)) throw error;
  }
}

export function createOffMachine(
  local: Local,
  repositories: RepositorySource,
): OffMachineBackups & Readonly<{ backUp: BackUp }> {
  const { machine } = local;
  const policy = machine.tuning.repositoryBackups;
  const expired: Expired = new Map();
  // pgBackRest would remove the files of a backup that is not complete.
  const backingUp = new Set<string>();
  return {
    ship: async (id, retentionDays, signal) => {
      const { program } = repositories;
      const states = new Map<string, OffMachineState>();
      let [more, isBackupDue] = [false, false];
      // A service that is being made has nothing yet.
      const marker = await readMarker(machine.layout.service(id));
      if (program === null || marker?.provisioned !== true || marker.exchange !== null)
        return { states, more, isBackupDue };
      const { upgrade } = marker;
      const context = { machine, program };
      for (const repository of await repositories.list()) {
        const shipped = await ship({ context, id, upgrade, repository, policy, signal });
        states.set(repository.id, shipped.state);
        more ||= shipped.more;
        isBackupDue ||= shipped.isBackupDue;
        // A newer backup is needed before an older one can be removed.
        if (
          shipped.state.problem === null &&
          shipped.state.backups.length > 1 &&
          !backingUp.has(id)
        ) {
          const days = retentionDays ?? repository.retentionDays;
          await expireOnceADay(expired, context, id, upgrade, repository, days);
        }
      }
      return { states, more, isBackupDue };
    },
    backUp: async (id, wanted, runStep, signal) => {
      const { program } = repositories;
      if (program === null) throw new Error(PGBACKREST_REMEDY);
      const marker = await readMarker(machine.layout.service(id));
      if (marker?.provisioned !== true)
        throw new Error('it has not run yet: try again when it is READY');
      const { upgrade } = marker;
      const context = { machine, program };
      const problems: unknown[] = [];
      backingUp.add(id);
      try {
        for (const repository of await repositories.list()) {
          const shipment = { context, id, upgrade, repository, policy, signal };
          // A repository that fails does not keep the others from their backup.
          await takeBackup(shipment, wanted, runStep).catch((error: unknown) => {
            signal.throwIfAborted();
            problems.push(error);
          });
        }
      } finally {
        backingUp.delete(id);
      }
      if (problems.length > 0) throw problems[0];
    },
    verify: (spec, runStep, signal) => verifyAll(local, repositories, spec, runStep, signal),
    describe: (id) => describe(local, repositories, id),
    findForeign: async ({ sealed, stanza }, untilMs) => {
      const { program, repository } = await openForeign(repositories, sealed);
      const backups = await listBackups({ program }, stanza, repository);
      return backups.find(({ takenMs }) => takenMs <= untilMs) ?? null;
    },
  };
}

async function describe(
  { machine }: Local,
  repositories: RepositorySource,
  id: string,
): Promise<ReadonlyMap<string, OffMachineState>> {
  const listed = await repositories.list();
  const found = await Promise.all(
    listed.map(async ({ id: repositoryId }) => ({
      repositoryId,
      state: await offMachine({ machine }, id, repositoryId),
    })),
  );
  return new Map(
    found.flatMap(({ repositoryId, state }) =>
      state === null ? [] : [[repositoryId, state] as const],
    ),
  );
}

/** Verifies the newest backup in each repository. @returns problem: why one cannot be restored */
async function verifyAll(
  { machine, verifications }: Local,
  { program, list }: RepositorySource,
  spec: ServiceSpec,
  runStep: RunStep,
  signal: AbortSignal,
): ReturnType<OffMachineBackups['verify']> {
  if (program === null) throw new Error(PGBACKREST_REMEDY);
  const marker = await readMarker(machine.layout.service(spec.id));
  const { usable } = machine.installations;
  const installation = installationOf(usable, marker, spec);
  if (installation === null) throw new Error(missingFor(usable, spec.addons, spec.major));
  const context = { machine, program };
  let problem: string | null = null;
  const all: RestoredBackup[] = [];
  for (const repository of await list()) {
    const upgrade = marker?.upgrade ?? null;
    const policy = machine.tuning.repositoryBackups;
    const shipment = { context, id: spec.id, upgrade, repository, policy, signal };
    const { verification, restored } = await verifyInRepository(
      shipment,
      verifications,
      spec,
      installation,
      runStep,
    ).catch((error: unknown) => {
      // The others are verified also if this one does not answer.
      if (!isPassing(error)) throw error;
      return { verification: { problem: error.message }, restored: null };
    });
    if (restored !== null) all.push(restored);
    if (verification.problem !== undefined)
      problem ??= `${repository.name}: ${verification.problem}`;
  }
  return { problem, restored: all };
}
