/**
 * The root directory of servers: empty mount points, links into the system, and the entries of the
 * fstab that all servers share.
 */
import { existsSync } from 'node:fs';
import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { noneOf } from '../../../lib/processes.ts';
import { ensureDirectories, ensureDirectory, symlink, writeFile } from './root-files.ts';

/** Where a root is assembled. */
export const NEW_ROOT = '/sys';
export const MIB = 1024 ** 2;
/** Nothing of ours uses them; an extension may want a small file. */
const TEMPORARY_BYTES = 16 * MIB;
const DEVICES = ['null', 'zero', 'full', 'random', 'urandom'] as const;
/** Links into /usr on most systems, directories on others. */
const PROGRAM_DIRECTORIES = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'] as const;
/** Where mount points can be made when the namespace is, since nothing of the disk is there. */
export const EMPTY = ['/tmp', '/var/tmp'] as const;
/** The part of the system that is always visible. */
export const SYSTEM = ['/usr', '/etc'] as const;
/**
 * Where /etc of the machine is. At its own place is a directory of links to its entries, and of
 * files on which the passwd and group of a service are mounted. On those of the machine they would
 * not stay: a program like useradd replaces them by a rename, which ends all mounts on them.
 */
const SYSTEM_ETC = '/etc.system';
export const ACCOUNT_FILES = ['passwd', 'group'] as const;

/** Makes the directory of mount points. @returns the entries of the system */
export async function makeRootfs(rootfs: string): Promise<string[]> {
  await ensureDirectory(rootfs, 0o755);
  for (const directory of ['usr', 'proc', 'dev/shm', 'tmp', 'var/tmp', 'old'])
    await ensureDirectories(rootfs, directory, 0o755);
  await makeEtc(rootfs);
  for (const device of DEVICES) await writeFile(join(rootfs, 'dev', device), '', { flag: 'a' });
  const directories: string[] = [];
  for (const name of PROGRAM_DIRECTORIES) {
    const target = await readlink(join('/', name)).catch(noneOf('ENOENT', 'EINVAL'));
    const mountPoint = join(rootfs, name);
    if (target !== null) {
      await symlink(target, mountPoint).catch(noneOf('EEXIST'));
    } else if (existsSync(join('/', name))) {
      await ensureDirectory(mountPoint, 0o755);
      directories.push(join('/', name));
    }
  }
  return [
    entry(rootfs, '', 'bind,ro,nosuid'),
    entry('/etc', SYSTEM_ETC, 'rbind,ro,nosuid,nodev'),
    ...['/usr', ...directories].map((path) => entry(path, path, 'rbind,ro,nosuid,nodev')),
    ...DEVICES.map((device) => entry(join('/dev', device), join('/dev', device), 'bind')),
    ...EMPTY.map((path) => tmpfs(path, '1777', TEMPORARY_BYTES)),
  ];
}

/** Makes the links to what /etc has now; what it gets later is seen after the next start. */
async function makeEtc(rootfs: string): Promise<void> {
  const etc = join(rootfs, 'etc');
  for (const directory of [etc, join(rootfs, SYSTEM_ETC)]) await ensureDirectory(directory, 0o755);
  for (const name of ACCOUNT_FILES) await writeFile(join(etc, name), '', { flag: 'a' });
  const present = new Set(await readdir(etc));
  for (const name of await readdir('/etc'))
    if (!present.has(name))
      await symlink(join(SYSTEM_ETC, name), join(etc, name)).catch(noneOf('EEXIST'));
}

/** An entry of the fstab, for a target in the new root. */
export function entry(source: string, target: string, options: string): string {
  return `${escaped(source)} ${escaped(`${NEW_ROOT}${target}`)} none ${options} 0 0`;
}

/** A file system in memory. */
export function tmpfs(target: string, mode: string, bytes: number): string {
  return (
    `tmpfs ${escaped(`${NEW_ROOT}${target}`)} tmpfs ` +
    `mode=${mode},size=${bytes},nosuid,nodev,noexec,X-mount.mkdir 0 0`
  );
}

/** Blanks and backslashes as fstab(5) writes them. */
function escaped(path: string): string {
  return path.replaceAll(
    /[\s\\#]/g,
    (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, '0')}`,
  );
}
