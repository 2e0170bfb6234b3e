import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { instancePaths } from '../../host/layout.ts';
import type { SetState } from './set-state.ts';
import type { NodeKnown } from '../../../postgres/replication/lag.ts';
import { judge } from './judge.ts';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'howdah-judge-'));
  const { data } = instancePaths(directory);
  await mkdir(data, { recursive: true });
  await writeFile(join(data, 'standby.signal'), '');
});
afterAll(() => rm(directory, { recursive: true }));

const FOLLOWING: NodeKnown = {
  takesWrites: false,
  paused: false,
  streaming: true,
  streamedMs: 0,
  ahead: false,
  lag: { bytes: 0, seconds: 0 },
};

type Seen = { isConnected?: boolean; silentMs?: number; root?: string };

/** Judges node 1. @param node null: it was not measured yet */
function judged(node: Partial<NodeKnown> | null, known: Partial<SetState> = {}, seen: Seen = {}) {
  const { isConnected = true, silentMs = null, root = directory } = seen;
  const topology = Object({
    machine: { layout: { member: () => instancePaths(root) } },
    monitor: { isConnected: () => isConnected, silentMs: () => silentMs },
    readLagLimit: { bytes: 1000, seconds: 10 },
  });
  const state = {
    spec: { id: 'set' },
    nodes: new Map(node === null ? [] : [[1, { ...FOLLOWING, ...node }]]),
    withheld: new Set<number>(),
    elsewhere: new Set<number>(),
    unasked: new Set<number>(),
    ...known,
  };
  return judge(topology, Object(state), 1);
}

test('a node that follows the primary gets connections, also while the primary is away', () => {
  expect(judged({})).toMatchObject({ eligible: true, detail: 'follows the primary' });
  expect(judged({ streaming: false })).toMatchObject({ eligible: true });
  expect(judged({ lag: null })).toMatchObject({ eligible: true });
});

test('a restart of the control plane leaves connections to a node that was not asked yet', () => {
  const unasked = new Set([1]);
  expect(judged(null, { unasked })).toMatchObject({ eligible: true });
  expect(judged(null, { unasked, withheld: new Set([1]) })).toMatchObject({ eligible: false });
});

test.each<[string, Parameters<typeof judged>, RegExp]>([
  ['accepts writes', [{ takesWrites: true }], /accepts writes/],
  ['has WAL that the primary lacks', [{ ahead: true }], /the primary has not/],
  ['lags by too many bytes', [{ lag: { bytes: 1001, seconds: 0 } }], /limit is 1000 bytes/],
  ['lags by too many seconds', [{ lag: { bytes: 0, seconds: 10.1 } }], /10 s/],
  ['is about to be restarted', [{}, { withheld: new Set([1]) }], /restarted/],
  ['is about to be moved', [{}, { elsewhere: new Set([1]) }], /moved/],
  ['does not answer', [{}, {}, { silentMs: 1 }], /does not answer/],
  ['has no session of ours', [{}, {}, { isConnected: false }], /does not run/],
  ['was not measured', [null], /does not run/],
  ['has no data yet', [{}, {}, { root: '/nonexistent' }], /being made/],
])('a node that %s gets no connections', (_, args, detail) => {
  expect(judged(...args)).toEqual({ eligible: false, detail: expect.stringMatching(detail) });
});
