/** A control plane whose directory disappears: a removal, a move, a disk that is unmounted. */
import { existsSync } from 'node:fs';
import { mkdir, readdir, readlink, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { allPids, argumentsOf } from './probe.ts';
import { until, untilExpected } from './until.ts';

async function start(): Promise<{ cloud: Installation; data: string }> {
  const cloud = await install();
  const data = await readlink(join(cloud.home, 'data')).catch(() => join(cloud.home, 'data'));
  return { cloud, data };
}

/** Waits until the control plane has ended by itself. @returns what it printed */
async function ended(cloud: Installation): Promise<string> {
  await until('the control plane ends', async () => {
    const pid = cloud.planePid();
    if (pid !== undefined && existsSync(`/proc/${pid}`)) throw new Error('it goes on');
    return true;
  });
  return cloud.output.join('');
}

/** The programs that were started with a path below a directory. */
async function programsBelow(directory: string): Promise<string[]> {
  const all = await Promise.all((await allPids()).map(argumentsOf));
  return all
    .filter((words) => words.slice(1).some((word) => word.startsWith(`${directory}/`)))
    .map(([program = '']) => program);
}

const timesSaid = (output: string): number => output.split('The control plane ends').length - 1;

test('a home that was removed is not made again, and its servers and poolers end', async () => {
  const { cloud, data } = await start();
  await cloud.create({ name: 'a', service_type: 'POSTGRES', enable_pooler: true });
  expect(await programsBelow(data)).not.toEqual([]);
  // The whole directory is gone when the control plane looks.
  const pid = cloud.planePid();
  if (pid === undefined) throw new Error('no control plane runs');
  process.kill(pid, 'SIGSTOP');
  for (const path of [data, cloud.home])
    await rm(path, { recursive: true, force: true, maxRetries: 20 });
  process.kill(pid, 'SIGCONT');
  const output = await ended(cloud);
  expect(output).toContain(`${cloud.home} is gone`);
  expect(timesSaid(output)).toBe(1);
  expect(existsSync(cloud.home)).toBe(false);
  await untilExpected('its programs have ended', async () =>
    expect(await programsBelow(data)).toEqual([]),
  );
});

test('whatever has taken the path is left alone', { tags: 'slow' }, async () => {
  const { cloud, data } = await start();
  const aside = `${cloud.home}.aside`;
  await rename(cloud.home, aside);
  await mkdir(cloud.home);
  onTestFinished(() => rm(cloud.home, { recursive: true, force: true }));
  expect(timesSaid(await ended(cloud))).toBe(1);
  expect(await readdir(cloud.home)).toEqual([]);
  // Back in its place, everything is as before.
  await rm(cloud.home, { recursive: true });
  await rename(aside, cloud.home);
  await cloud.up();
  expect((await cloud.request('GET', '/services')).status).toBe(200);
  expect(existsSync(data)).toBe(true);
  expect(await cloud.destroy()).toEqual([]);
});

test('a part that is gone is noticed too', { tags: 'slow' }, async () => {
  const { cloud } = await start();
  const key = join(cloud.home, 'secrets.key');
  await rename(key, `${key}.aside`);
  expect(await ended(cloud)).toContain(`${key} is gone`);
  expect(existsSync(key)).toBe(false);
  await rename(`${key}.aside`, key);
  expect(await cloud.destroy()).toEqual([]);
});
