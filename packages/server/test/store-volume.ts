/** Shared by the tests of data volumes. */
import type { ChildProcess } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import { expect } from 'vitest';
import { connectTo, HOWDAH, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { exists, imagePaths, probeCloneMethod, run } from './probe.ts';
import { during } from './until.ts';

export type ServiceAccess = Service & { initial_password: string };

/** Waits until a child has made a file, by the millisecond, or has ended. */
export async function untilMade(path: string, child: ChildProcess): Promise<void> {
  let isMade = false;
  const look = async (): Promise<void> => {
    isMade = await exists(path);
  };
  await during(() => !isMade && child.exitCode === null, look);
}

/** Nothing stays mounted, however a test ended. */
export async function sweep(home: string): Promise<void> {
  const { data, staging, image, unfinished, checked } = imagePaths(join(home, 'data'));
  for (const mounted of [data, staging]) await run('umount', ['--lazy', mounted]).catch(() => '');
  for (const file of [image, unfinished, checked]) {
    const devices = (
      await run('losetup', ['--noheadings', '--output', 'NAME', '--associated', file]).catch(
        () => '',
      )
    ).split('\n');
    for (const device of devices.filter(Boolean))
      await run('losetup', ['--detach', device]).catch(() => '');
  }
  await rm(home, { recursive: true, force: true });
}

export async function stepsOf(cloud: Installation, service: Service): Promise<string> {
  const [operation] = (await cloud.operations(service.service_id)).toReversed();
  return operation?.steps.map(({ name, detail }) => `${name}: ${detail}`).join('\n') ?? '';
}

export async function fork(
  cloud: Installation,
  parent: Service,
  strategy: 'NOW' | 'LAST_SNAPSHOT',
): Promise<ServiceAccess> {
  const { data } = await cloud.client.POST(
    '/projects/{project_id}/services/{service_id}/forkService',
    {
      params: { path: { project_id: cloud.projectId, service_id: parent.service_id } },
      body: { fork_strategy: strategy },
    },
  );
  if (data?.initial_password === undefined) throw new Error('no password in the answer to a fork');
  return {
    ...(await cloud.until(data.service_id, 'READY')),
    initial_password: data.initial_password,
  };
}

export async function storageOf(cloud: Installation, service: Service) {
  const { data } = await cloud.client.GET(
    '/projects/{project_id}/services/{service_id}/backupStatus',
    {
      params: { path: { project_id: cloud.projectId, service_id: service.service_id } },
    },
  );
  if (data === undefined || data.storage === null) throw new Error('what is shared is not told');
  return data.storage;
}

export async function query(
  cloud: Installation,
  service: ServiceAccess,
  sql: string,
): Promise<unknown[]> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

export const down = async (cloud: Installation): Promise<void> => {
  await cloud.stop('SIGTERM');
  expect(await cloud.cli('down', '--databases')).toMatchObject({ code: 0, stderr: '' });
};

export async function spawned(args: string[], home: string): Promise<{ stdout: string }> {
  const stdout = await run(process.execPath, [HOWDAH, ...args], {
    env: { PATH: process.env['PATH'], HOWDAH_HOME: home, NO_COLOR: '1' },
  });
  return { stdout };
}

/** Programs that stand before the real ones: the Nth call kills its caller. */
export async function makeTools(programs: readonly string[], home: string) {
  const directory = join(home, 'tools');
  const [calls, deadly] = [join(directory, 'calls'), join(directory, 'deadly')];
  await mkdir(directory, { recursive: true });
  for (const program of programs) {
    const script = `#!/bin/sh
echo ${program} >> ${calls}
[ "$(wc -l < ${calls})" -ne "$(cat ${deadly})" ] || { kill -9 $PPID; exit 1; }
PATH=\${PATH#*:} exec ${program} "$@"
`;
    await writeFile(join(directory, program), script);
    await chmod(join(directory, program), 0o755);
  }
  return {
    directory,
    killAt: async (call: number): Promise<void> => {
      await writeFile(calls, '');
      await writeFile(deadly, String(call));
    },
  };
}

export const GIB = 1024 ** 3;
/** Why there can be no store here; null: there can. Found out by mounting one. */
export async function whyNone(): Promise<string | null> {
  if (process.getuid?.() !== 0) return 'it takes root';
  const directory = await mkdtemp(join(tmpdir(), 'hd-probe-'));
  try {
    if ((await probeCloneMethod(directory)) !== 'copy')
      return `${tmpdir()} is on a file system that clones by reference; TMPDIR names another`;
    const { bavail, bsize } = await statfs(directory);
    if (bavail * bsize < 8 * GIB)
      return `${tmpdir()} has less than 8 GB free; TMPDIR names another`;
    await writeFile(join(directory, 'image'), '');
    await run('truncate', ['-s', '400M', join(directory, 'image')]);
    await mkdir(join(directory, 'mounted'));
    for (const program of ['mkfs.btrfs', 'mkfs.xfs']) {
      await run(program, ['-q', '-f', join(directory, 'image')]);
      await run('mount', ['-o', 'loop', join(directory, 'image'), join(directory, 'mounted')]);
      await run('umount', [join(directory, 'mounted')]);
    }
    return null;
  } catch (error) {
    return messageOf(error);
  } finally {
    await rm(directory, { recursive: true });
  }
}
