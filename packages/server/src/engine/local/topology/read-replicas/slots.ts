/** The slots of a read replica set on the primary that it follows. */
import { join } from 'node:path';
import { noneOf } from '../../../../lib/processes.ts';
import { NotYet } from '../../host/not-yet.ts';
import { listEntries, removeEntry } from '../../host/service-files.ts';
import { nodeName } from '../../postgres/replication.ts';
import { findServer } from '../../postgres/server.ts';
import type { Topology } from '../context.ts';
import { primaryPaths } from '../instances.ts';
import { dropSlots } from '../standbys.ts';
import { findPrimary } from './measure.ts';
import type { Primary } from './set-state.ts';

/** @throws NotYet when the primary cannot be asked */
export function primaryOrWait(primary: Primary | null): Primary {
  if (primary === null) throw new NotYet('the primary cannot be asked');
  return primary;
}

/**
 * Drops the slots of a set that is being removed, or removes those of a primary that does not run
 * with its files. @throws NotYet when that has to wait
 */
export async function dropSlotsOfSet(
  topology: Topology,
  id: string,
  parent: string,
): Promise<void> {
  const prefix = nodeName(id, 0).slice(0, -1);
  const primary = await findPrimary(topology, parent);
  const paths = primaryPaths(topology.machine, parent);
  if (primary !== null) {
    const ours = primary.slots.filter((name) => name.startsWith(prefix));
    // Its nodes have ended, which the primary may be about to see.
    if ((await dropSlots(topology.monitor, primary.key, ours)) < ours.length)
      throw new NotYet('its slots are dropped when none is in use');
    return;
  }
  if ((await findServer(paths)) !== null)
    throw new NotYet('its slots are dropped when the primary can be asked');
  const directory = join(paths.data, 'pg_replslot');
  const slots = (await listEntries(directory).catch(noneOf('ENOENT', 'ENOTDIR'))) ?? [];
  for (const name of slots.filter((slot) => slot.startsWith(prefix)))
    await removeEntry(join(directory, name));
}
