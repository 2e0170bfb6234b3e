/**
 * Data that a restore has replaced. It stays in the directory of its service for a while: it may
 * have what the backups lack.
 */
import { existsSync, readdirSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { noneOf } from '../../../lib/processes.ts';
import { discard } from '../host/clone.ts';
import type { Layout } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { currentBoot, readMarker, writeMarker } from '../host/marker.ts';
import { mkdir, rename } from '../host/root-files.ts';
import { isFile } from '../../../lib/untrusted-files.ts';
import { removeLinkedArchive } from './linked-archive.ts';

type Place = Pick<Machine, 'layout' | 'cloneMethod'>;

/**
 * Sets the data of all servers of a service aside, none of which runs. From then on its marker
 * names the restore that makes its data.
 *
 * @param recovery the id of the restore
 * @returns a line for the user
 */
export async function setAside(place: Place, id: string, recovery: string): Promise<string> {
  const { layout } = place;
  const marker = await readMarker(layout.service(id));
  if (marker === null) throw new Error(`service ${id} has no directory of ours`);
  const kept = join(layout.aside(id), recovery);
  const before = marker.recovery === null ? null : join(layout.aside(id), marker.recovery);
  const others = await numbersIn(join(layout.service(id).root, 'members'));
  const data = [0, ...others].map((n) => ({ n, path: layout.member(id, n).data }));
  const found = data.filter(({ path }) => existsSync(path));
  await mkdir(layout.aside(id), { recursive: true, mode: 0o700 });
  if (!marker.provisioned && before !== null && before !== kept && existsSync(before)) {
    // An earlier restore did not end: what it has made is nobody's data.
    for (const { path } of found) await discard(place, id, path);
    await rename(before, kept);
  } else {
    await mkdir(kept, { recursive: true, mode: 0o700 });
    for (const { n, path } of found) await rename(path, join(kept, String(n)));
  }
  await writeMarker(layout.service(id), {
    ...marker,
    provisioned: false,
    madeIn: await currentBoot(),
    recovery,
  });
  return 'it stays for the time in which a deleted service can be restored';
}

/**
 * The data of the primary that a restore has set aside: its WAL may be newer than the archive;
 * null: there was none.
 */
export function asideOf(layout: Layout, id: string, recovery: string): string | null {
  const kept = join(layout.aside(id), recovery);
  const all = existsSync(kept) ? readdirSync(kept).map((n) => join(kept, n)) : [];
  return all.find((data) => !isFile(join(data, 'standby.signal'))) ?? all[0] ?? null;
}

/** The end of the names of data that a reset has replaced: nobody wants it back. */
export const REPLACED = '-replaced';

/** Removes the data that resets have replaced, unless it is being exchanged. */
export async function removeReplaced(place: Place, id: string): Promise<void> {
  const directory = place.layout.aside(id);
  const marker = await readMarker(place.layout.service(id));
  if (marker === null || marker.exchange !== null) return;
  const names = (await readdir(directory).catch(noneOf('ENOENT'))) ?? [];
  for (const name of names.filter((one) => one.endsWith(REPLACED)))
    await discardAside(place, id, join(directory, name));
}

async function discardAside(place: Place, id: string, path: string): Promise<void> {
  await removeLinkedArchive(join(path, 'archive'));
  await discard(place, id, path);
}

/** Removes data that was set aside longer ago than it is kept, if no restore needs its WAL. */
export async function removeOldAside(place: Place, id: string, keptMs: number): Promise<void> {
  await removeReplaced(place, id);
  const directory = place.layout.aside(id);
  const marker = await readMarker(place.layout.service(id));
  const underWay = marker?.provisioned === false ? marker.recovery : null;
  for (const recovery of (await readdir(directory).catch(noneOf('ENOENT'))) ?? []) {
    if (recovery === underWay) continue;
    const path = join(directory, recovery);
    if (Date.now() - (await stat(path)).mtimeMs < keptMs) continue;
    await discardAside(place, id, path);
  }
}

/** Removes the archives of a service on other disks: of its data, and of that set aside. */
export async function removeLinkedArchives(layout: Layout, id: string): Promise<void> {
  const aside = layout.aside(id);
  const names = (await readdir(aside).catch(noneOf('ENOENT', 'ENOTDIR'))) ?? [];
  await removeLinkedArchive(layout.service(id).archive);
  for (const name of names) await removeLinkedArchive(join(aside, name, 'archive'));
}

async function numbersIn(directory: string): Promise<number[]> {
  return ((await readdir(directory).catch(noneOf('ENOENT'))) ?? []).map(Number);
}
