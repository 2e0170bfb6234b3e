import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turnOfLoop } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import { waitUntilReady } from './server.ts';

/** Longer than a test may take. */
const DEADLINE_MS = 600_000;

let paths: InstancePaths;
beforeEach(async () => {
  paths = instancePaths(await mkdtemp(join(tmpdir(), 'howdah-ready-')));
  await mkdir(paths.data);
});
afterEach(() => rm(paths.root, { recursive: true }));

test.each([
  ['stays', false],
  ['is removed by the process that stops it', true],
])('a start ends with its server: the pid file %s', async (_what, isRemoved) => {
  const server = spawn('/bin/sleep', ['60']);
  await once(server, 'spawn');
  await writeFile(paths.pidFile, `${server.pid}\n`);
  const state = waitUntilReady(paths, DEADLINE_MS);
  // The file has been read.
  await turnOfLoop();
  if (isRemoved) await rm(paths.pidFile);
  server.kill('SIGKILL');
  expect(await state).toBe('ended');
});
