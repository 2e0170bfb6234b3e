/**
 * The directory through which files go to pgBackRest and come from it, outside of the directories
 * of services: what their users have written is read with the checks of untrusted-files.ts, once,
 * and cannot change after that.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { removeTree } from '../host/clone.ts';
import type { Machine } from '../host/machine-record.ts';
import { chmod, chown, mkdir } from '../host/root-files.ts';
import type { ShipContext } from './state.ts';

/** @param purpose a name beside which others of the service can be used at the same time */
export function spoolOf(
  { machine }: Pick<ShipContext, 'machine'>,
  id: string,
  purpose: 'ship' | 'backup' | 'fetch',
): string {
  return join(machine.layout.spool, `${id}-${purpose}`);
}

/** Makes a directory that only root and pgBackRest can enter. An existing one is kept. */
export async function makeSpool({ program }: ShipContext, path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  await chmod(path, 0o700);
  if (program.user !== null) await chown(path, program.user.uid, program.user.gid);
}

/**
 * Makes a directory of root's, through which pgBackRest reaches others that it is given. A backup
 * names the files that it is restored to: beside its directory it can make none.
 */
export async function makeFetchSpool({ program }: ShipContext, path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o711 });
  await chmod(path, 0o711);
  // An older release gave it to pgBackRest.
  if (program.user !== null) await chown(path, 0, 0);
}

/** Removes what was fetched for a service that is deleted before its restore has ended. */
export async function removeFetched(
  { layout, cloneMethod }: Pick<Machine, 'layout' | 'cloneMethod'>,
  id: string,
): Promise<void> {
  // Named by the place that gets the backups: a directory of the service, or an unfinished one.
  const names = (await readdir(layout.spool)).filter(
    (name) => name.startsWith(`services-${id}`) && name.endsWith('-fetch'),
  );
  for (const name of names) await removeTree(join(layout.spool, name), cloneMethod);
}

export async function removeSpool({ machine }: ShipContext, path: string): Promise<void> {
  await removeTree(path, machine.cloneMethod);
}
