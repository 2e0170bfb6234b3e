import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { decide } from './decide.ts';
import { REACHED, REPLICATED, server, SPEC, UNREACHED, up } from './decide.testing.ts';
import { desiredOf, restartMarkOf } from './desired-state.ts';

const MOMENT = '2026-11-27T10:00:00.000Z';
const FORK: ServiceSpec = {
  ...SPEC,
  provisioned: false,
  origin: { parent: 'parent1234', strategy: 'PITR', targetTime: MOMENT },
};

test('a service whose desired state cannot be read keeps its archive', () => {
  const unread = up(SPEC, { desired: null });
  const known = { ...REACHED, hasArchive: true };
  expect(decide(SPEC, unread, known)).toMatchObject({ kind: 'write', desired: { archives: true } });
  const step = decide(SPEC, unread, REACHED);
  expect(step).toMatchObject({ kind: 'write' });
  expect(Object(step).desired).not.toHaveProperty('archives');
});

test('a former primary that does not follow is explained by a store that takes no WAL', () => {
  const change = { desired: desiredOf(REPLICATED), awaited: 'start PostgreSQL', ready: 1 };
  const without = { ...up(REPLICATED, change), servers: [server(0)] };
  const problem = 'the object store has taken no WAL';
  expect(decide(REPLICATED, without, { ...REACHED, archiveProblem: problem })).toMatchObject({
    kind: 'wait',
    isObstacle: false,
    why: expect.stringMatching(/CloudNativePG: .*; a former primary follows once .*taken no WAL/),
  });
  expect(decide(REPLICATED, without, REACHED)).toMatchObject({
    why: expect.not.stringMatching(/;/),
  });
  const alone = { ...up(SPEC, { ...change, desired: desiredOf(SPEC), ready: 0 }), servers: [] };
  expect(decide(SPEC, alone, { ...REACHED, archiveProblem: problem })).toMatchObject({
    why: expect.not.stringMatching(/WAL/),
  });
});

test('a fork of a moment is restarted for limits of its size once it has its data', () => {
  const source = { parent: 'parent1234', snapshot: null, targetTime: MOMENT };
  const recovering = desiredOf(FORK, source);
  const started = {
    ...up(FORK, { desired: recovering, provisioned: false }),
    servers: [server(0, { restarts: restartMarkOf(recovering) })],
  };
  const step = decide(FORK, started, UNREACHED);
  expect(step).toMatchObject({ kind: 'write', name: 'detach from parent', awaits: true });
  expect(Object(step).desired).toEqual(desiredOf(FORK));
  const detaching = {
    ...started,
    ...up(FORK, { desired: desiredOf(FORK), provisioned: false, awaited: 'detach from parent' }),
    servers: started.servers,
  };
  // Until another pod runs, it has the limits of before.
  expect(decide(FORK, detaching, UNREACHED)).toMatchObject({ kind: 'wait' });
  const restarted = { ...detaching, servers: [server(0)] };
  expect(decide(FORK, restarted, UNREACHED)).toMatchObject({ kind: 'ended' });
});
