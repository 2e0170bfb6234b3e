import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { decide, KILL_AFTER_MS, type Observation, type Step } from './decide.ts';
import { spec, PAUSED, POOLED, INSIDE, SPARE, FORK, pooler } from './decide.testing.ts';
import { afterStep } from './simulate.ts';

const UPGRADE = { id: 'upgrade', to: 18, undo: false, before: null };
const anySpec = fc.constantFrom(
  spec(),
  PAUSED,
  SPARE,
  FORK,
  POOLED,
  INSIDE,
  spec({ recovery: { id: 'restore', repository: null, at: null } }),
  spec({ power: 'paused', pooler: { port: 20001 } }),
  spec({ upgrade: UPGRADE, pooler: { port: 20001 } }),
  spec({ upgrade: { ...UPGRADE, undo: true } }),
);
const anyServer = fc.option(
  fc.record({
    phase: fc.constantFrom('starting' as const, 'ready' as const, 'stopping' as const),
    start: fc.constantFrom('current' as const, 'otherSettings' as const, 'restart' as const),
    placed: fc.boolean(),
  }),
);
const anyObservation: fc.Arbitrary<Observation> = fc
  .record({
    directory: fc.constantFrom(
      'absent' as const,
      'incomplete' as const,
      'lost' as const,
      'ours' as const,
    ),
    provisioned: fc.boolean(),
    recovered: fc.boolean(),
    upgrade: fc.constantFrom('asked' as const, 'made' as const, 'done' as const),
    notStartable: fc.constant(null),
    templateReady: fc.boolean(),
    server: anyServer,
    silentMs: fc.option(fc.nat({ max: 2 * KILL_AFTER_MS })),
    connected: fc.boolean(),
    owned: fc.boolean(),
    limited: fc.boolean(),
    filesCurrent: fc.boolean(),
    certificateCurrent: fc.boolean(),
    contentsCurrent: fc.boolean(),
    extension: fc.constantFrom(null, 'create' as const, 'drop' as const),
    pooler: fc.option(
      fc.record({
        frozen: fc.boolean(),
        watched: fc.boolean(),
        current: fc.boolean(),
        placed: fc.boolean(),
        disallowedSessions: fc.nat({ max: 2 }),
      }),
    ),
    disallowedSessions: fc.nat({ max: 2 }),
  })
  .map((seen) => ({
    ...seen,
    // A server is found through its directory; a watch is one on a server.
    server: seen.directory === 'ours' ? seen.server : null,
    provisioned: seen.directory === 'ours' && seen.provisioned,
    // The directory's marker names the upgrade.
    upgrade:
      seen.directory === 'ours' || seen.directory === 'lost' ? seen.upgrade : ('done' as const),
    owned: seen.owned || seen.directory !== 'ours',
    connected: seen.connected && seen.server !== null && seen.directory === 'ours',
    silentMs: seen.server !== null && seen.directory === 'ours' ? seen.silentMs : null,
  }));

/**
 * The observed state after a step.
 *
 * @param luck whether a start gets through at once, and recovery ends well
 */
function after(seen: Observation, step: Step, luck: boolean): Observation {
  if (luck) return afterStep(seen, step);
  if (step.kind === 'start')
    return {
      ...afterStep(seen, step),
      server: { phase: 'starting', start: 'current', placed: true },
      connected: false,
    };
  if (step.kind !== 'wait') return afterStep(seen, step);
  return seen.server?.phase === 'ready'
    ? { ...seen, silentMs: (seen.silentMs ?? 0) + KILL_AFTER_MS }
    : { ...seen, server: null, connected: false, silentMs: null };
}

test('from any observed state, step by step, it settles in the desired state', () => {
  fc.assert(
    fc.property(
      anySpec,
      anyObservation,
      fc.array(fc.boolean(), { maxLength: 6 }),
      (wanted, start, fate) => {
        let seen = start;
        const steps: string[] = [];
        for (;;) {
          const step = decide(wanted, seen);
          steps.push(step.kind);
          if (step.kind === 'settled') break;
          expect(steps.length, steps.join(', ')).toBeLessThan(25);
          seen = after(seen, step, fate[steps.length - 1] ?? true);
        }
        expect(seen.pooler).toEqual(
          wanted.pooler !== null && wanted.power === 'running' ? pooler : null,
        );
        if (wanted.power === 'paused') expect(seen.server).toBeNull();
        else
          expect(seen).toMatchObject({
            directory: 'ours',
            server: { phase: 'ready', start: 'current', placed: true },
            connected: true,
            silentMs: null,
            filesCurrent: true,
            certificateCurrent: true,
            limited: true,
            owned: true,
            disallowedSessions: 0,
            ...(wanted.recovery === null ? {} : { recovered: true }),
            ...(wanted.upgrade === null ? {} : { upgrade: 'done' }),
            ...(wanted.firstVerifier === null ? {} : { provisioned: true }),
          });
      },
    ),
    { numRuns: 2000 },
  );
});

const NOT_REPLACED = { provisioned: true, recovery: null, upgrade: null };

test('a provisioned service is never initialised again', () => {
  fc.assert(
    fc.property(anySpec, anyObservation, (wanted, seen) => {
      const { kind } = decide({ ...wanted, ...NOT_REPLACED }, seen);
      expect(['discard', 'makeTemplate', 'clone', 'fork', 'recover']).not.toContain(kind);
      if (wanted.power === 'running' && seen.directory !== 'ours')
        expect(['refuse', 'stopPooler']).toContain(kind);
    }),
  );
});

test('a directory that is not ours is never touched', () => {
  fc.assert(
    fc.property(anySpec, anyObservation, (wanted, seen) => {
      expect(decide(wanted, { ...seen, directory: 'foreign' })).toMatchObject({ kind: 'refuse' });
    }),
  );
});
