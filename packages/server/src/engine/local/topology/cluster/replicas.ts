/** The standbys of a cluster: their slots on the primary, and their removal. */
import { archiveLeftovers } from '../../backup/recovery.ts';
import { discard, removeTree } from '../../host/clone.ts';
import { ownerOf } from '../../host/users.ts';
import { memberName } from '../../postgres/replication.ts';
import { fence } from '../../postgres/server.ts';
import type { Topology } from '../context.ts';
import type { Found } from '../executor.ts';
import { followersOf } from '../replication-state.ts';
import { createSlots, dataOf, dropSlots, forgetStandby } from '../standbys.ts';
import { keyOf, type ClusterRound } from './round.ts';

/** Gives the primary a slot for each standby, and no others. @returns a line for the user */
export async function setSlots(round: ClusterRound): Promise<string> {
  const { ha } = round;
  const { monitor } = round.topology;
  const key = keyOf(round, ha.primary);
  const names = ha.servers.filter(({ n }) => n !== ha.primary).map(({ n }) => memberName(n));
  const there = (await followersOf(monitor, key))?.slots ?? [];
  await dropSlots(
    monitor,
    key,
    there.filter((name) => !names.includes(name)),
  );
  await createSlots(monitor, key, names);
  return names.join(', ');
}

/** Ends an instance that is not desired any more, and removes it. */
export async function retire(
  { machine, monitor, standbys }: Topology,
  id: string,
  n: number,
  { key, paths }: Found,
): Promise<void> {
  monitor.forget(key);
  if (!(await fence(paths))) throw new Error(`member ${n} does not end`);
  if (dataOf(paths) === 'primary') await archiveLeftovers(ownerOf(machine, paths), paths);
  await discard(machine, id, paths.data);
  // The directory of instance 0 is the service's.
  if (n > 0) await removeTree(paths.root, machine.cloneMethod);
  forgetStandby(standbys, key);
}
