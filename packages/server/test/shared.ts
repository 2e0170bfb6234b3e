/**
 * The installation that test files share, one file after the other, in each process that runs
 * tests: for tests that do not end the control plane, and that leave nothing but services behind.
 */
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { install, type Installation } from './harness.ts';

let made: Promise<Installation> | null = null;

/**
 * The shared installation; the first file that asks starts it.
 *
 * @returns its `destroy` removes the services; `shared-end.ts` ends it after the last test
 */
export async function share(): Promise<Installation> {
  made ??= make();
  const cloud = await made;
  // A test that failed between a stop and a start may have left it so.
  if (!isRunning(cloud.planePid())) await cloud.up();
  return {
    ...cloud,
    destroy: async () => {
      await cloud.tidy();
      return [];
    },
  };
}

function isRunning(pid: number | undefined): boolean {
  try {
    return pid !== undefined && process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** The directory where `shared-end.ts` finds the shared installations of a run. */
async function make(): Promise<Installation> {
  const directory = process.env['TEST_SHARED'];
  if (directory === undefined) throw new Error('TEST_SHARED is set by shared-end.ts');
  const cloud = await install();
  await writeFile(join(directory, basename(cloud.home)), JSON.stringify(cloud.env));
  return cloud;
}
