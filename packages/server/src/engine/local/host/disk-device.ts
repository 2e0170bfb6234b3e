/** Which block device a path is stored on, as cgroups name it. */
import { unescaped } from '../../../lib/mounts.ts';
import { realpath, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { noneOf, readOrNull } from '../../../lib/processes.ts';

/**
 * The disk (`major:minor`) that holds a path; null: none that the kernel can limit, such as memory,
 * an overlay or a network.
 *
 * @param path may be missing: then its nearest directory that is there
 */
export async function findDisk(path: string): Promise<string | null> {
  const there = await realpath(path).catch(noneOf('ENOENT'));
  if (there === null) return dirname(path) === path ? null : findDisk(dirname(path));
  const { dev } = await stat(there, { bigint: true });
  const device = Number(majorOf(dev)) > 0 ? nameOf(dev) : await deviceOfMount(there);
  return device === null ? null : wholeDisk(device);
}

/** Limits apply to whole disks: the kernel refuses partitions. */
async function wholeDisk(device: string): Promise<string | null> {
  const entry = join('/sys/dev/block', device);
  const directory = await realpath(entry).catch(noneOf('ENOENT'));
  if (directory === null) return null;
  if ((await readOrNull(join(directory, 'partition'))) === null) return device;
  return (await readOrNull(join(dirname(directory), 'dev')))?.trim() ?? null;
}

/** The device of a file system that numbers its files by subvolume, as btrfs does. */
async function deviceOfMount(path: string): Promise<string | null> {
  const source = sourceOfMount((await readOrNull('/proc/self/mountinfo')) ?? '', path);
  const found = source === null ? null : await stat(source, { bigint: true }).catch(() => null);
  return found?.isBlockDevice() === true ? nameOf(found.rdev) : null;
}

/**
 * The source of the mount that a path is in, proc_pid_mountinfo(5): the last of those with the
 * longest mount point.
 *
 * @param mounts as /proc/self/mountinfo has them
 */
export function sourceOfMount(mounts: string, path: string): string | null {
  let best: { point: string; source: string } | null = null;
  for (const line of mounts.split('\n')) {
    const [fields = '', origin = ''] = line.split(' - ');
    const point = unescaped(fields.split(' ')[4] ?? '');
    const source = unescaped(origin.split(' ')[1] ?? '');
    const holds =
      point !== '' &&
      (path === point || path.startsWith(point.endsWith('/') ? point : `${point}/`));
    if (holds && (best === null || point.length >= best.point.length)) best = { point, source };
  }
  return best?.source ?? null;
}

/** As glibc's gnu_dev_major and gnu_dev_minor take a device number apart. */
const majorOf = (dev: bigint): bigint => ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & 0xfffff000n);
const minorOf = (dev: bigint): bigint => (dev & 0xffn) | ((dev >> 12n) & 0xffffff00n);
const nameOf = (dev: bigint): string => `${majorOf(dev)}:${minorOf(dev)}`;
