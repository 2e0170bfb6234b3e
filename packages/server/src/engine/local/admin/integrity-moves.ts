/** The part of the integrity check of a machine that is about moves between regions. */
import { partsOfKey } from '../host/layout.ts';
import type { Site } from '../host/machine-record.ts';
import type { Expected } from '../../../store/integrity.ts';
import type { Inventory } from './inventory.ts';

/** Servers of services that have moved away: they would accept writes that nobody has then. */
export function movedAmiss(
  before: Pick<Expected, 'moved'>,
  after: Pick<Expected, 'moved'>,
  { processes }: Pick<Inventory, 'processes'>,
): string[] {
  const moved = after.moved.filter(({ id }) => before.moved.some((one) => one.id === id));
  return moved
    .filter(({ id }) => processes.some((key) => partsOfKey(key).id === id))
    .map(({ id }) => `service ${id} has moved to another region and has a process here`);
}

/** Copies of services that do not move here: of a move that was forgotten, or whose row is gone. */
export function copiesAmiss(
  before: Pick<Expected, 'copied' | 'services'>,
  after: Pick<Expected, 'copied' | 'services'>,
  { copies }: Pick<Inventory, 'copies'>,
  { layout }: Pick<Site, 'layout'>,
): string[] {
  const known = [before, after].flatMap(({ copied, services }) => [...copied, ...services]);
  return copies
    .filter((id) => !known.some((one) => one.id === id))
    .map(
      (id) =>
        `copy of ${id}, which does not move to this region: end what runs in ` +
        `${layout.copy(id).root}, and remove it`,
    );
}
