/** An installation that loses all but its repository and the recovery kit. */
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Schemas } from '@howdah/client';
import { cloud, place } from '../test/repository-cloud.ts';
import { untilExpected } from '../test/until.ts';

export async function repository(): Promise<Schemas['Repository']> {
  const { stdout } = await cloud.cli('repo', 'show', 'offsite', '-o', 'json');
  const found: Schemas['Repository'] = JSON.parse(stdout);
  return found;
}

/** Waits until everything up to now is in the repository. */
export async function untilSafe(): Promise<void> {
  const nowMs = Date.now();
  await untilExpected('everything is in the repository', async () => {
    // The figure is of a moment after this one. How long the command line takes says nothing.
    const askedMs = Date.now();
    const { behind_seconds: behind, control_saved: saved } = await repository();
    expect(
      behind === null ? 0 : Math.min(askedMs - behind * 1000, Date.parse(saved ?? '')),
    ).toBeGreaterThan(nowMs);
  });
}

/** @returns the file of the recovery kit */
export async function loseMachine(): Promise<string> {
  const kit = await cloud.cli('repo', 'kit', 'offsite');
  const path = join(place, 'kit.json');
  await writeFile(path, kit.stdout);
  await cloud.stop('SIGKILL');
  expect((await cloud.cli('down', '--databases')).code).toBe(0);
  for (const entry of await readdir(cloud.home))
    await rm(join(cloud.home, entry), { recursive: true, force: true });
  return path;
}
