import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../engine.ts';
import { decide, KILL_AFTER_MS, STEP_NAME, type Observation, type Step } from './decide.ts';

const spec = (more: Partial<ServiceSpec> = {}): ServiceSpec => ({
  id: 'abcdefghij',
  addons: [],
  size: 'shared',
  storageGb: 10,
  power: 'running',
  endpoint: { host: 'localhost', port: 20000 },
  firstVerifier: 'SCRAM',
  origin: null,
  pooler: null,
  ha: null,
  vpc: null,
  set: null,
  ...more,
});
const PAUSED = spec({ power: 'paused' });
const POOLED = spec({ pooler: { port: 20001 } });
const INSIDE = spec({ vpc: { id: '1000', address: '10.1.0.2', allowedNetworks: ['10.1.0.0/16'] } });
const SPARE = spec({ firstVerifier: null });
const ORIGIN = { parent: 'jihgfedcba', strategy: 'NOW', targetTime: null } as const;
const FORK = spec({ origin: ORIGIN });

/** A service as it is when all is well. */
const WELL: Observation = {
  directory: 'ours',
  provisioned: true,
  templateReady: false,
  server: { phase: 'ready', sizeCurrent: true, placed: true },
  silentMs: null,
  connected: true,
  limited: true,
  owned: true,
  filesCurrent: true,
  certificateCurrent: true,
  pooler: null,
  disallowedSessions: 0,
};
/** A pooler as it is when all is well. */
const pooler = { frozen: false, watched: true, current: true, placed: true, disallowedSessions: 0 };
const DOWN: Observation = { ...WELL, server: null, connected: false };
const NONE: Observation = { ...DOWN, directory: 'absent', provisioned: false };
const phase = (phase: 'starting' | 'stopping') => ({
  server: { phase, sizeCurrent: true, placed: true },
  connected: false,
});

const KILL: Step = { kind: 'stop', mode: 'kill', why: 'it had not answered for 20 s' };

const TABLE: [string, ServiceSpec, Observation, Step][] = [
  ['nothing there, no template', spec(), NONE, { kind: 'makeTemplate' }],
  ['nothing there, a template', spec(), { ...NONE, templateReady: true }, { kind: 'clone' }],
  [
    'nothing there of a fork, which needs no template',
    FORK,
    NONE,
    { kind: 'fork', origin: ORIGIN },
  ],
  [
    'unfinished from before the machine went down',
    spec(),
    { ...NONE, directory: 'incomplete', templateReady: true },
    { kind: 'discard' },
  ],
  [
    'unfinished from before, of a fork',
    FORK,
    { ...NONE, directory: 'incomplete' },
    { kind: 'discard' },
  ],
  ['nothing there, and it must not run', PAUSED, NONE, { kind: 'settled' }],
  ['down, files of another size', spec(), { ...DOWN, filesCurrent: false }, { kind: 'writeFiles' }],
  [
    'down, an old certificate',
    spec(),
    { ...DOWN, certificateCurrent: false },
    { kind: 'writeFiles' },
  ],
  ['down and ready to start', spec(), DOWN, { kind: 'start' }],
  ['down, never provisioned', spec(), { ...DOWN, provisioned: false }, { kind: 'start' }],
  ['down, as desired', PAUSED, { ...DOWN, filesCurrent: false }, { kind: 'settled' }],
  [
    'down, of a user that it shares',
    spec(),
    { ...DOWN, owned: false, filesCurrent: false },
    { kind: 'own' },
  ],
  ['down for good, of a user that it shares', PAUSED, { ...DOWN, owned: false }, { kind: 'own' }],
  [
    'up, of a user that it shares',
    spec(),
    { ...WELL, owned: false, filesCurrent: false },
    { kind: 'stop', mode: 'fast', why: 'to run as a user of its own' },
  ],
  [
    'its pooler is of a user that it shares',
    POOLED,
    { ...WELL, owned: false, pooler },
    { kind: 'stopPooler', why: 'to run as a user of its own' },
  ],
  ['up, and it must not run', PAUSED, WELL, { kind: 'stop', mode: 'fast', why: 'paused' }],
  [
    'silent, and it must not run',
    PAUSED,
    { ...WELL, silentMs: KILL_AFTER_MS },
    { kind: 'stop', mode: 'fast', why: 'paused' },
  ],
  ['silent for too long', spec(), { ...WELL, silentMs: KILL_AFTER_MS }, KILL],
  [
    'silent for too long while it stops',
    spec(),
    { ...WELL, ...phase('stopping'), silentMs: KILL_AFTER_MS },
    KILL,
  ],
  [
    'silent for too long while it starts',
    spec(),
    { ...WELL, ...phase('starting'), silentMs: KILL_AFTER_MS },
    KILL,
  ],
  [
    'silent for a while',
    spec(),
    {
      ...WELL,
      silentMs: KILL_AFTER_MS - 1,
      server: { phase: 'ready', sizeCurrent: false, placed: true },
    },
    {
      kind: 'wait',
      why: 'the server does not answer; after 20 s it is started again',
      waitMs: 500,
    },
  ],
  [
    'silent for a while and not watched any more',
    spec(),
    { ...WELL, silentMs: 1, connected: false },
    { kind: 'connect' },
  ],
  [
    'stopping',
    spec(),
    { ...WELL, ...phase('stopping') },
    { kind: 'wait', why: 'the server is shutting down', waitMs: 20 },
  ],
  [
    'starting or recovering',
    spec(),
    { ...WELL, ...phase('starting') },
    {
      kind: 'wait',
      why: 'the server is starting; after a crash it first recovers from its log',
      waitMs: 20,
    },
  ],
  [
    'up with another size',
    spec(),
    { ...WELL, server: { phase: 'ready', sizeCurrent: false, placed: true }, filesCurrent: false },
    { kind: 'stop', mode: 'fast', why: 'for its new size' },
  ],
  [
    'up with another size, and not watched',
    spec(),
    { ...WELL, server: { phase: 'ready', sizeCurrent: false, placed: true }, connected: false },
    { kind: 'stop', mode: 'fast', why: 'for its new size' },
  ],
  ['up and not watched', spec(), { ...WELL, connected: false }, { kind: 'connect' }],
  [
    'up, its certificate at its end',
    spec(),
    { ...WELL, certificateCurrent: false, filesCurrent: false },
    { kind: 'renewCertificate' },
  ],
  [
    'up, a file that needs no restart',
    spec(),
    { ...WELL, filesCurrent: false },
    { kind: 'reload' },
  ],
  ['up, and not held to its size', spec(), { ...WELL, limited: false }, { kind: 'limit' }],
  [
    'up outside of its VPC: it leaves before anything else',
    INSIDE,
    { ...WELL, server: { phase: 'ready', sizeCurrent: false, placed: false }, filesCurrent: false },
    { kind: 'stop', mode: 'fast', why: 'to move into the VPC 1000' },
  ],
  [
    'up in a VPC that it is in no more',
    spec(),
    { ...WELL, server: { phase: 'ready', sizeCurrent: true, placed: false } },
    { kind: 'stop', mode: 'fast', why: 'to leave its VPC' },
  ],
  [
    'its pooler stands elsewhere: nobody gets in that way meanwhile',
    spec({ pooler: { port: 20001 }, vpc: INSIDE.vpc }),
    {
      ...WELL,
      server: { phase: 'ready', sizeCurrent: true, placed: false },
      pooler: { ...pooler, placed: false },
    },
    { kind: 'stopPooler', why: 'to move into the VPC 1000' },
  ],
  [
    'somebody is in who would not be let in now',
    INSIDE,
    { ...WELL, disallowedSessions: 2 },
    { kind: 'endSessions' },
  ],
  [
    'rules first, then those who are in',
    INSIDE,
    { ...WELL, disallowedSessions: 2, filesCurrent: false },
    { kind: 'reload' },
  ],
  [
    'its pooler has clients who would not be let in now',
    POOLED,
    { ...WELL, pooler: { ...pooler, disallowedSessions: 1 } },
    { kind: 'stopPooler', why: 'with clients that are let in no more' },
  ],
  [
    'up and not provisioned',
    spec(),
    { ...WELL, provisioned: false },
    { kind: 'setFirstPassword', verifier: 'SCRAM' },
  ],
  ['a spare waits provisioning', SPARE, { ...WELL, provisioned: false }, { kind: 'settled' }],
  ['all is well', spec(), WELL, { kind: 'settled' }],
  ['up without its pooler', POOLED, WELL, { kind: 'startPooler' }],
  [
    'its pooler has another configuration',
    POOLED,
    { ...WELL, pooler: { ...pooler, current: false } },
    { kind: 'reloadPooler' },
  ],
  [
    'its pooler is not watched, or holds its clients back',
    POOLED,
    { ...WELL, pooler: { ...pooler, watched: false } },
    { kind: 'reloadPooler' },
  ],
  [
    'its pooler is frozen',
    POOLED,
    { ...WELL, pooler: { ...pooler, frozen: true } },
    { kind: 'stopPooler', why: 'a signal had stopped it' },
  ],
  ['all is well with a pooler', POOLED, { ...WELL, pooler }, { kind: 'settled' }],
  [
    'down with a pooler, which waits',
    POOLED,
    { ...DOWN, pooler: { ...pooler, watched: false } },
    { kind: 'start' },
  ],
  [
    'a pooler that is not wanted',
    spec(),
    { ...WELL, pooler },
    { kind: 'stopPooler', why: 'disabled' },
  ],
  [
    'up with a pooler, and it must not run',
    PAUSED,
    { ...WELL, pooler },
    { kind: 'stopPooler', why: 'disabled' },
  ],
  [
    'down with a pooler, as desired',
    spec({ power: 'paused', pooler: { port: 20001 } }),
    { ...DOWN, pooler },
    { kind: 'stopPooler', why: 'paused' },
  ],
];
test.each(TABLE)('%s', (_title, wanted, seen, step) => {
  expect(decide(wanted, seen)).toEqual(step);
});

test('every step is in the table', () => {
  const kinds = new Set(TABLE.map(([, , , { kind }]) => kind));
  for (const kind of Object.keys(STEP_NAME)) expect(kinds).toContain(kind);
});

test('a directory that is not ours is never touched', () => {
  fc.assert(
    fc.property(anySpec, anyObservation, (wanted, seen) => {
      expect(decide(wanted, { ...seen, directory: 'foreign' })).toMatchObject({ kind: 'refuse' });
    }),
  );
});

// ── settling ─────────────────────────────────────────────────────────────────────────────────────────────────────

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

/** What a step makes of what was there. @param luck whether a start gets through at once, and recovery ends well */
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

test('from anything that can be seen, step by step, it settles in the desired state', () => {
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
