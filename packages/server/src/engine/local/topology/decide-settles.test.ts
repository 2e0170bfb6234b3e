import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { decide, KILL_AFTER_MS, type Observation, type Step } from './decide.ts';
import { spec, PAUSED, POOLED, INSIDE, SPARE, FORK, pooler } from './decide.testing.ts';

const anySpec = fc.constantFrom(
  spec(),
  PAUSED,
  SPARE,
  FORK,
  POOLED,
  INSIDE,
  spec({ power: 'paused', pooler: { port: 20001 } }),
);
const anyServer = fc.option(
  fc.record({
    phase: fc.constantFrom('starting' as const, 'ready' as const, 'stopping' as const),
    sizeCurrent: fc.boolean(),
    placed: fc.boolean(),
  }),
);
const anyObservation: fc.Arbitrary<Observation> = fc
  .record({
    directory: fc.constantFrom('absent' as const, 'incomplete' as const, 'ours' as const),
    provisioned: fc.boolean(),
    templateReady: fc.boolean(),
    server: anyServer,
    silentMs: fc.option(fc.nat({ max: 2 * KILL_AFTER_MS })),
    connected: fc.boolean(),
    owned: fc.boolean(),
    limited: fc.boolean(),
    filesCurrent: fc.boolean(),
    certificateCurrent: fc.boolean(),
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
    owned: seen.owned || seen.directory !== 'ours',
    connected: seen.connected && seen.server !== null && seen.directory === 'ours',
    silentMs: seen.server !== null && seen.directory === 'ours' ? seen.silentMs : null,
  }));

/**
 * What a step makes of what was there.
 *
 * @param luck whether a start gets through at once, and recovery ends well
 */
function after(seen: Observation, step: Step, luck: boolean): Observation {
  switch (step.kind) {
    case 'settled':
    case 'refuse':
      return seen;
    case 'wait':
      if (seen.server?.phase === 'ready')
        return { ...seen, silentMs: luck ? null : (seen.silentMs ?? 0) + KILL_AFTER_MS };
      return luck && seen.server?.phase === 'starting'
        ? { ...seen, server: { ...seen.server, phase: 'ready' } }
        : { ...seen, server: null, connected: false, silentMs: null };
    case 'discard':
      return { ...seen, directory: 'absent' };
    case 'makeTemplate':
      return { ...seen, templateReady: true };
    case 'clone':
    case 'fork':
      return {
        ...seen,
        directory: 'ours',
        provisioned: false,
        owned: true,
        filesCurrent: true,
        certificateCurrent: true,
      };
    case 'writeFiles':
      return { ...seen, filesCurrent: true, certificateCurrent: true };
    case 'start':
      return {
        ...seen,
        server: { phase: luck ? 'ready' : 'starting', sizeCurrent: true, placed: true },
        connected: luck,
        silentMs: null,
      };
    case 'connect':
      return { ...seen, connected: true, silentMs: null };
    case 'limit':
      return { ...seen, limited: true };
    case 'renewCertificate':
      return { ...seen, certificateCurrent: true };
    case 'reload':
      return { ...seen, filesCurrent: true };
    case 'own':
      return { ...seen, owned: true, filesCurrent: false };
    case 'endSessions':
      return { ...seen, disallowedSessions: 0 };
    case 'setFirstPassword':
      return { ...seen, provisioned: true };
    case 'startPooler':
    case 'reloadPooler':
      return { ...seen, pooler };
    case 'stopPooler':
      return { ...seen, pooler: null };
    case 'stop':
      return { ...seen, server: null, connected: false, silentMs: null };
    default:
      return step satisfies never;
  }
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
            server: { phase: 'ready', sizeCurrent: true, placed: true },
            connected: true,
            silentMs: null,
            filesCurrent: true,
            certificateCurrent: true,
            limited: true,
            owned: true,
            disallowedSessions: 0,
            ...(wanted.firstVerifier === null ? {} : { provisioned: true }),
          });
      },
    ),
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
