import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { instancePaths } from '../host/layout.ts';
import { argumentsOfStart, startedBy, waitUntilReady } from './server.ts';
import { sizeLabel } from '../../postgres/size-label.ts';

test('the command line of a server says how it was started', () => {
  for (const restarts of [0, 7]) {
    const start = { size: { cpuMillis: 500, memoryGbs: 2 }, preload: ['b', 'a'], restarts };
    const size = sizeLabel(start.size, start.preload);
    expect(startedBy(argumentsOfStart(start))).toEqual({ size, restarts });
  }
});

test('a server of an older release was started without a request', () => {
  expect(startedBy(['-c', 'howdah.size=shared'])).toEqual({ size: 'shared', restarts: 0 });
  expect(startedBy(['-c', 'port=5432'])).toEqual({ size: null, restarts: 0 });
});

test('the order of libraries makes no other size', () => {
  expect(sizeLabel('shared', ['b', 'a'])).toBe('shared+a+b');
  expect(sizeLabel({ cpuMillis: 250, memoryGbs: 1 })).toBe('250m-1g');
});

test('a start that another process has stopped is not waited for', async () => {
  const root = await mkdtemp(join(tmpdir(), 'howdah-server-'));
  try {
    const paths = instancePaths(root);
    let state: string | null = null;
    void waitUntilReady(paths, 3_600_000).then((seen) => (state = seen));
    // The file must be read while it is there, and again after that.
    while (state === null) {
      await writeFile(paths.pidFile, String(process.pid));
      await rm(paths.pidFile);
    }
    expect(state).toBe('ended');
  } finally {
    await rm(root, { recursive: true });
  }
});
