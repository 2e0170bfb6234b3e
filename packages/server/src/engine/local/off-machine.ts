/** Backups of the services of this machine in repositories. */
import { RepositoryProblem } from '../../repository/repository.ts';
import type { KeptRepository, RepositorySource } from '../../repository/source.ts';
import type { OffMachineBackups, OffMachineState } from '../off-machine.ts';
import { readMarker } from './host/marker.ts';
import type { Local } from './local.ts';
import type { ShipContext } from './repository/context.ts';
import { expire } from './repository/expire.ts';
import { ship } from './repository/ship.ts';
import { offMachine } from './repository/state.ts';

const DAY_MS = 86_400_000;
/** A full backup each week, and what has changed each day. */
const [FULL_EVERY_MS, BACKUP_EVERY_MS] = [7 * DAY_MS, DAY_MS];

const policyOf = ({ retentionDays }: KeptRepository) => ({
  retentionDays,
  fullEveryMs: FULL_EVERY_MS,
  backupEveryMs: BACKUP_EVERY_MS,
});

/** The times of the last removals, by service and repository. */
type Expired = Map<string, number>;

/** Removes what is older than the retention from a repository. A failure is tried the next day. */
async function expireOnceADay(
  expired: Expired,
  context: ShipContext,
  id: string,
  repository: KeptRepository,
): Promise<void> {
  const key = `${id} ${repository.id}`;
  if (performance.now() - (expired.get(key) ?? -Infinity) < DAY_MS) return;
  expired.set(key, performance.now());
  try {
    await expire(context, id, repository, policyOf(repository));
  } catch (error) {
    // Old backups take space, and do no other harm.
    if (!(error instanceof RepositoryProblem)) throw error;
  }
}

export function createOffMachine(
  { machine, keeper }: Local,
  repositories: RepositorySource,
): OffMachineBackups {
  const expired: Expired = new Map();
  return {
    ship: async (id, signal) => {
      const { program } = repositories;
      const states = new Map<string, OffMachineState>();
      let more = false;
      // A service that is being made has nothing yet.
      const marker = await readMarker(machine.layout.service(id));
      if (program === null || marker?.provisioned !== true) return { states, more };
      const context = { machine, keeper, program };
      for (const repository of await repositories.list()) {
        const shipped = await ship(context, id, repository, policyOf(repository), signal);
        states.set(repository.id, shipped.state);
        more ||= shipped.more;
        // A newer backup is needed before an older one can be removed.
        if (shipped.state.problem === null && shipped.state.backups.length > 1)
          await expireOnceADay(expired, context, id, repository);
      }
      return { states, more };
    },
    describe: async (id) => {
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
    },
  };
}
