/** Mounts images by loop devices, and lets go of them. */
import { quotedWord } from '@howdah/contract/shell';
import { messageOf } from '@howdah/contract/thrown';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { noneOf } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';

/** Freed blocks are given back to the disk under the image. */
const MOUNT_OPTIONS = 'noatime,discard';
/** The kernel lets go of what a process that has just ended had open a moment later. */
const UNMOUNT_ATTEMPTS = 300;
/** Unwritten data is flushed first, which takes its time. */
export const FLUSH_DEADLINE_MS = 600_000;

/** A parent directory on another device than what is in it: something is mounted there. */
export async function isMounted(path: string): Promise<boolean> {
  const [inside, outside] = await Promise.all([
    stat(path).catch(noneOf('ENOENT')),
    stat(dirname(path)).catch(noneOf('ENOENT')),
  ]);
  return inside !== null && outside !== null && inside.dev !== outside.dev;
}

export async function mountImage(image: string, directory: string): Promise<void> {
  await withDevice(image, (device) => mount(device, directory));
}

export async function mount(device: string, directory: string): Promise<void> {
  await run('mount', ['-o', MOUNT_OPTIONS, device, directory]);
}

/**
 * A loop device for an image; the one it has already, if so. It goes with the last use of it: when
 * this ends, or with the mount.
 */
export async function withDevice(
  image: string,
  use: (device: string) => Promise<void>,
): Promise<void> {
  const device = await run('losetup', [
    '--find',
    '--show',
    '--nooverlap',
    '--direct-io=on',
    image,
  ]).catch((error: unknown) => {
    throw new Error(
      `no loop device for ${image}: ` +
        `${messageOf(error)}; in a container ` +
        'it needs --privileged',
      { cause: error },
    );
  });
  try {
    await use(device.trim());
  } finally {
    await run('losetup', ['--detach', device.trim()]);
  }
}

export async function devicesOf(image: string): Promise<string[]> {
  return (await run('losetup', ['--noheadings', '--output', 'NAME', '--associated', image]))
    .split('\n')
    .filter(Boolean);
}

/**
 * Lets go of the devices of an image that a process killed between attaching and mounting has left.
 */
export async function releaseDevices(image: string): Promise<void> {
  for (const device of await devicesOf(image)) {
    await run('losetup', ['--detach', device]).catch(async (error: unknown) => {
      // A device that is no longer listed went by itself meanwhile.
      if ((await devicesOf(image)).includes(device)) throw error;
    });
  }
}

export async function unmount(directory: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await run('umount', [directory], { deadlineMs: FLUSH_DEADLINE_MS });
      return;
    } catch (error) {
      if (attempt === UNMOUNT_ATTEMPTS) {
        throw new Error(
          `${directory} cannot be unmounted: ` +
            `${messageOf(error)}; fuser -vm ` +
            `${quotedWord(directory)} shows who uses it`,
          { cause: error },
        );
      }
      await sleep(100);
    }
  }
}
