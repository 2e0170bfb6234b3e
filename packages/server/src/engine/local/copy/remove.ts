/** Removes the copy of a service that does not move any more. */
import { discard } from '../host/clone.ts';
import { forgetFollowed } from '../host/followed.ts';
import type { InstancePaths } from '../host/layout.ts';
import { readMarker } from '../host/marker.ts';
import { releaseUser } from '../host/users.ts';
import { fence, findServer } from '../postgres/server.ts';
import type { Topology } from '../topology/context.ts';
import { stopInstance } from '../topology/start-stop.ts';
import { endBackup, forgetBackup } from './base-backup.ts';
import { forgetLogin } from './place.ts';
import { forgetBegun } from './begun-file.ts';

/** Ends all that runs of a copy, and removes its files. */
export async function removeCopy(
  { machine, executor, renewEgress }: Pick<Topology, 'machine' | 'executor' | 'renewEgress'>,
  id: string,
): Promise<void> {
  const paths = machine.layout.copy(id);
  const [server, marker] = [await findServer(paths), await readMarker(paths)];
  await endBackup(paths);
  if (server !== null) await stopInstance(executor, id, paths, server, 'immediate');
  if (!(await fence(paths))) throw new Error('the server of the copy does not end');
  await forgetFollowed(paths);
  await renewEgress();
  await discard(machine, id, paths.root);
  if (machine.isolation.isolated && marker !== null && marker.uid !== null)
    await releaseUser(machine.isolation.users, marker.uid, paths.root);
}

/** Removes the files that only a copy needs from the directory of the service that it became. */
export async function forgetCopy(paths: InstancePaths): Promise<void> {
  await forgetLogin(paths);
  await forgetBackup(paths);
  await forgetBegun(paths);
}
