/** Where the data of a fork at a point in time comes from. */
import type { OffMachineState } from '../../engine/off-machine.ts';

/** Whether a repository has all that a service is restored to a moment from. @param ms of it */
export function reachesOffMachine(
  { earliestMs, safeToMs, gaps }: Pick<OffMachineState, 'earliestMs' | 'safeToMs' | 'gaps'>,
  ms: number,
): boolean {
  if (earliestMs === null || safeToMs === null || ms < earliestMs || ms > safeToMs) return false;
  return !gaps.some(
    ({ afterMs, beforeMs }) => ms > afterMs && (beforeMs === null || ms < beforeMs),
  );
}

/**
 * The repository that a service is restored to a moment from, the oldest that has it; null: none
 * has. The local backups come before repositories, since forks from them take no transfer.
 *
 * @param states of the service in each repository, by its id, oldest repository first
 */
export function chooseRepository(
  states: ReadonlyMap<string, OffMachineState>,
  ms: number,
): string | null {
  for (const [id, state] of states) if (reachesOffMachine(state, ms)) return id;
  return null;
}
