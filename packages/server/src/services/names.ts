/** Names of new services. Several services may share one; a caller can ask that none does. */
import { ApiError, NAME_MAX_CHARACTERS } from '@howdah/contract';
import { lockServicesNamed } from '../store/service-names.ts';
import type { Tx } from '../store/tables.ts';

/**
 * Refuses a name that is in use in the project, where the caller asked for that. Among
 * simultaneous calls for one name, one is accepted.
 *
 * @throws ApiError CONFLICT with the ids of the services of that name
 */
export async function refuseUsedName(
  tx: Tx,
  projectId: string,
  name: string,
  isUnique: boolean | undefined,
): Promise<void> {
  if (isUnique !== true) return;
  const ids = (await lockServicesNamed(tx, projectId, [name])).map(({ id }) => id);
  if (ids.length === 0) return;
  throw new ApiError(
    'CONFLICT',
    `name: the project has a service called ${JSON.stringify(name)} already, ${ids.join(', ')}; ` +
      'use that one, delete it, or choose another name',
    { service_ids: ids },
  );
}

/** The most forks without a name that get a number. */
const NUMBERED_FORKS = 100;

/** The default name of a fork: that of its parent with "-fork", and a number when it is in use. */
export async function nameOfFork(tx: Tx, projectId: string, parent: string): Promise<string> {
  const names = Array.from({ length: NUMBERED_FORKS }, (_, index) => forkName(parent, index + 1));
  const used = new Set((await lockServicesNamed(tx, projectId, names)).map(({ name }) => name));
  return names.find((name) => !used.has(name)) ?? forkName(parent, 1);
}

/** Shortens the name of the parent so that the whole is no longer than names may be. */
export function forkName(parent: string, number: number): string {
  const suffix = number === 1 ? '-fork' : `-fork-${number}`;
  return `${[...parent].slice(0, NAME_MAX_CHARACTERS - suffix.length).join('')}${suffix}`;
}
