import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createOutOfMemory, readMemoryCounters, type MemoryCounters } from './out-of-memory.ts';

const GIB = 1024 ** 3;

test('warns of kills since the last round, for ten minutes, with limit and peak', async () => {
  let counters: MemoryCounters | null = { kills: 3, peakBytes: 2 * GIB, limitBytes: 2 * GIB };
  let nowMs = 0;
  const { warning } = createOutOfMemory(
    () => Promise.resolve(counters),
    () => Promise.resolve(['a']),
    () => nowMs,
  );
  expect(await warning('a')).toBeNull();
  counters = { ...counters, kills: 5 };
  expect(await warning('a')).toEqual({
    code: 'MEMORY',
    message: expect.stringMatching(
      /^2 processes were ended .* 2\.00 GiB \(peak 2\.00 GiB\);.* resize the service/,
    ),
  });
  nowMs = 599_999;
  expect(await warning('a')).not.toBeNull();
  nowMs = 600_000;
  expect(await warning('a')).toBeNull();
  // Made again: it counts from 0.
  counters = { ...counters, kills: 1 };
  expect((await warning('a'))?.message).toMatch(/^a process was ended/);
  counters = null;
  expect(await warning('a')).toBeNull();
});

test('a group that is made after the start counts from 0', async () => {
  const counters = { kills: 1, peakBytes: null, limitBytes: GIB };
  const { warning } = createOutOfMemory(
    () => Promise.resolve(counters),
    () => Promise.resolve([]),
  );
  expect((await warning('b'))?.message).toMatch(/^a process was ended .* 1\.00 GiB; /);
});

test('reads both versions of cgroups', async () => {
  const home = await mkdtemp(join(tmpdir(), 'howdah-oom-'));
  try {
    await mkdir(join(home, 'a'));
    const files = {
      'memory.events': 'low 0\nmax 7\noom 2\noom_kill 2\n',
      'memory.peak': '1000\n',
      'memory.max': '2000\n',
      'memory.oom_control': 'oom_kill_disable 0\nunder_oom 0\noom_kill 4\n',
      'memory.max_usage_in_bytes': '3000\n',
      'memory.limit_in_bytes': '4000\n',
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(home, 'a', name), text);
    const v1 = { kind: 'v1', cpu: home, cpuacct: null, memory: home, blkio: null } as const;
    expect(await readMemoryCounters({ kind: 'v2', root: home, disk: null }, 'a')).toEqual({
      kills: 2,
      peakBytes: 1000,
      limitBytes: 2000,
    });
    expect(await readMemoryCounters(v1, 'a')).toEqual({
      kills: 4,
      peakBytes: 3000,
      limitBytes: 4000,
    });
    expect(await readMemoryCounters(v1, 'b')).toBeNull();
    expect(await readMemoryCounters({ kind: 'none', why: 'a test' }, 'a')).toBeNull();
  } finally {
    await rm(home, { recursive: true });
  }
});
