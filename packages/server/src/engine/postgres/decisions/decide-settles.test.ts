import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Sleep } from '../../spec.ts';
import { decide, KILL_AFTER_MS, type Observation, type Step } from './decide.ts';
import { spec, PAUSED, POOLED, INSIDE, SPARE, FORK, pooler } from './decide.testing.ts';
import type { PlacedSpec } from './placed-spec.ts';
import { afterStep } from './simulate.ts';

const UPGRADE = { id: 'upgrade', to: 18, undo: false, before: null };
const maySleep = (more: Partial<Sleep>, rest: Partial<PlacedSpec> = {}) =>
  spec({
    serverPort: 20009,
    sleep: { afterSeconds: 60, isAsleep: false, mayStay: true, ...more },
    ...rest,
  });
const RECOVERY = { id: 'restore', repository: null, at: null };
const anySpec = fc.constantFrom(
  spec(),
  maySleep({}),
  maySleep({ isAsleep: true }),
  maySleep({ isAsleep: true, mayStay: false }),
  maySleep({ mayStay: false }, { power: 'paused' }),
  maySleep({ mayStay: false }, { recovery: RECOVERY }),
  maySleep({ mayStay: false }, { upgrade: UPGRADE }),
  maySleep({ mayStay: false }, { upgrade: { ...UPGRADE, undo: true } }),
  PAUSED,
  SPARE,
  FORK,
  POOLED,
  INSIDE,
  spec({ recovery: RECOVERY }),
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
const anyRelay = fc.option(
  fc.record({
    state: fc.constantFrom('held' as const, 'asleep' as const, 'waking' as const, 'awake' as const),
    current: fc.boolean(),
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
    relay: anyRelay,
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
  // The activator could not start it: the control plane does.
  if (seen.relay?.state === 'waking')
    return {
      ...seen,
      relay: { ...seen.relay, state: 'held' },
      server: null,
      connected: false,
    };
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
        const sleeps = seen.server === null && seen.relay?.state === 'asleep';
        const mayBeStopped =
          wanted.power === 'paused' || (sleeps && wanted.sleep?.mayStay === true);
        const relay = { state: sleeps ? 'asleep' : 'awake', current: true };
        const hasRelay = wanted.serverPort !== undefined && wanted.power === 'running';
        expect(seen.relay).toEqual(hasRelay ? relay : null);
        if (mayBeStopped) expect(seen.server).toBeNull();
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
        expect(['refuse', 'stopPooler', 'closeRelay', 'wait']).toContain(kind);
    }),
  );
});

const AT_DATA = ['discard', 'clone', 'fork', 'setAside', 'recover', 'convert', 'exchange', 'own'];

test('no client has a server started on data that a step replaces', () => {
  fc.assert(
    fc.property(anySpec, anyObservation, (wanted, seen) => {
      const { kind } = decide(wanted, seen);
      const state = seen.relay?.state ?? 'none';
      if (seen.server === null && state === 'waking')
        expect(['wait', 'stopPooler']).toContain(kind);
      if (!AT_DATA.includes(kind)) return;
      expect(state).not.toBe('asleep');
      if (seen.server === null) expect(['held', 'none']).toContain(state);
    }),
    { numRuns: 2000 },
  );
});

test('a directory that is not ours is never touched', () => {
  fc.assert(
    fc.property(anySpec, anyObservation, (wanted, seen) => {
      expect(decide(wanted, { ...seen, directory: 'foreign' })).toMatchObject({ kind: 'refuse' });
    }),
  );
});
