/**
 * Gives the files of services to users of their own: of new ones as they are made, of those made
 * before at their next start.
 */
import { lstatSync } from 'node:fs';
import { readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import type { ReplicaSet, ServiceSpec } from '../../spec.ts';
import { removeTree } from './clone.ts';
import type { InstancePaths } from './layout.ts';
import type { Machine } from './machine-record.ts';
import { type Owner, serviceOwner, allocateUser, holdUser, moveUser } from './users.ts';
import { readMarker, writeMarker, type Marker } from './marker.ts';
import { chmod, chown } from './root-files.ts';
import { run } from '../../../lib/run.ts';

/** A service, and of a read replica set the service that it follows. */
type IdAndParent = Pick<ServiceSpec, 'id'> & { readonly set: Pick<ReplicaSet, 'parent'> | null };

/**
 * Whether a service has the desired user: one of its own, or of a read replica set that of the
 * service which it follows.
 */
export async function isOwned(
  { isolation, layout }: Machine,
  { id, set }: IdAndParent,
  marker: Marker | null,
): Promise<boolean> {
  if (!isolation.isolated || marker === null) return true;
  if (set !== null) {
    const parent = await readMarker(layout.service(set.parent));
    return (
      parent === null ||
      (parent.uid === marker.uid && (marker.uid === null || marker.userOf === set.parent))
    );
  }
  return marker.uid !== null && holdUser(isolation.users, marker.uid, layout.service(id).root);
}

/**
 * The user of an instance that is being made, whose unfinished directory exists; null: our own.
 *
 * @param ahead the user that its files were made ahead for; null: none were
 */
export async function newOwner(
  { isolation, owner }: Machine,
  { root }: InstancePaths,
  ahead: Owner | null,
): Promise<Owner | null> {
  if (!isolation.isolated) return owner;
  if (ahead === null) return allocateUser(isolation.users, root);
  await moveUser(isolation.users, ahead.uid, root);
  return ahead;
}

/**
 * Gives all of a service to a user of its own, or to that of the service it follows. Nothing of it
 * may run. Where this is interrupted its marker names the former user still, and it is done again.
 *
 * @param followed the service that a read replica set follows; null: it is no set
 */
export async function ownService(
  machine: Machine,
  id: string,
  followed: string | null,
): Promise<string> {
  const { isolation, layout, cloneMethod } = machine;
  const paths = layout.service(id);
  const marker = await readMarker(paths);
  if (!isolation.isolated || marker === null || machine.owner === null)
    throw new Error(`service ${id} cannot have a user of its own`);
  // Not from its marker: that of a set made before there were users of services does not name it.
  const parentUid =
    followed === null ? undefined : (await readMarker(layout.service(followed)))?.uid;
  const owner =
    parentUid == null ? await allocateUser(isolation.users, paths.root) : serviceOwner(parentUid);
  const former = marker.uid ?? machine.owner.uid;
  // From here on, other services of the former user cannot enter by its path.
  await chown(paths.root, 0, owner.gid);
  await chmod(paths.root, 0o710);
  // The files of daemons are recreated as these start.
  for (const { root, conf, pidFile, lifeline, log } of [paths.pooler, layout.gateway(id)])
    for (const path of [root, conf, pidFile, lifeline, log]) await removeTree(path, cloneMethod);
  const numbers = await readdir(join(paths.root, 'members')).catch(() => []);
  for (const instance of [paths, ...numbers.map((n) => layout.member(id, Number(n)))])
    await giveInstance(instance, owner);
  await giveArchive(paths.archive, owner, former);
  for (const snapshot of await readdir(paths.snapshots).catch(() => [])) {
    await giveTree(join(paths.snapshots, snapshot, 'data'), owner);
  }
  await writeMarker(paths, {
    ...marker,
    uid: owner.uid,
    userOf: parentUid == null ? null : followed,
  });
  return `user ${owner.uid}`;
}

async function giveInstance(
  { root, config, data, socket, logs }: InstancePaths,
  owner: Owner,
): Promise<void> {
  await chown(root, 0, owner.gid);
  for (const path of [data, `${data}.new`, socket, logs]) await giveTree(path, owner);
  await giveTree(config, { ...owner, uid: 0 });
}

/**
 * An archive that the operator has put on another disk is given as far as it was the former user's.
 */
async function giveArchive(archive: string, owner: Owner, former: number): Promise<void> {
  const target = await realpath(archive).catch(() => null); // a disk that is not there
  if (target !== null)
    await giveTree(target, owner, target === archive ? [] : ['-uid', String(former)]);
}

/**
 * Gives a tree to a user, without following links and without crossing into another file system. A
 * file with several names may belong to another service, and keeps its owner. `find` works in
 * directories that it has opened, so changes of their paths do not redirect it.
 */
export async function giveTree(
  path: string,
  { uid, gid }: Owner,
  condition: readonly string[] = [],
): Promise<void> {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return;
  const several = ['-type', 'f', '-links', '+1'];
  const own = ['-execdir', 'chown', '--no-dereference', `${uid}:${gid}`, '{}', '+'];
  const options = { env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin' }, deadlineMs: 600_000 };
  await run('find', [path, '-xdev', ...condition, '!', '(', ...several, ')', ...own], options);
  const left = await run('find', [path, '-xdev', ...several], options);
  if (left !== '')
    process.emitWarning(
      `files with several names are not given to user ${uid}: ` +
        left.trim().split('\n').join(', '),
    );
}
