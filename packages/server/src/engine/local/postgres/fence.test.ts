import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import { fence } from './server.ts';

let top: string;
beforeAll(async () => {
  top = await realpath(await mkdtemp(join(tmpdir(), 'howdah-fence-')));
  // A process has the name of the link that it was started by.
  await symlink('/bin/sleep', join(top, 'postgres'));
});
afterAll(() => rm(top, { recursive: true }));

async function makeInstance(name: string): Promise<InstancePaths> {
  const paths = instancePaths(join(top, name));
  await mkdir(paths.data, { recursive: true });
  await mkdir(dirname(paths.pidFile), { recursive: true });
  return paths;
}

/** A process of PostgreSQL that works on the data of an instance. */
async function startBackend({ data }: InstancePaths): Promise<ChildProcess> {
  const backend = spawn(join(top, 'postgres'), ['60'], { cwd: data });
  await once(backend, 'spawn');
  return backend;
}

test('the fence ends backends that outlive their server, and nobody else', async () => {
  const [paths, other] = [await makeInstance('fenced'), await makeInstance('other')];
  const [left, spared] = [await startBackend(paths), await startBackend(other)];
  try {
    // The server itself is dead already, and its pid may be another process by now.
    await writeFile(paths.pidFile, String(process.pid));
    expect(await fence(paths)).toBe(true);
    await expect.poll(() => left.signalCode, { timeout: 5000 }).toBe('SIGKILL');
    expect(spared.exitCode ?? spared.signalCode).toBeNull();
  } finally {
    left.kill('SIGKILL');
    spared.kill('SIGKILL');
  }
});
