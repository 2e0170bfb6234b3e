import { expect, test } from 'vitest';
import { decide, KILL_AFTER_MS, STEP_NAME, type Observation, type Step } from './decide.ts';
import {
  spec,
  PAUSED,
  POOLED,
  INSIDE,
  SPARE,
  ORIGIN,
  FORK,
  WELL,
  pooler,
  DOWN,
  NONE,
  phase,
} from './decide.testing.ts';
import type { PlacedSpec } from './placed-spec.ts';

const KILL: Step = { kind: 'stop', mode: 'kill', why: 'it had not answered for 20 s' };
const LOST: Step = {
  kind: 'refuse',
  why:
    'its data is missing: mount its disk, bring its data back, or restore it from its backups ' +
    '(howdah service recover abcdefghij)',
};
const RESET = { id: 'reset', to: 18, undo: false, before: null, reset: ORIGIN };
const RESTORED = { recovery: { id: 'restore', repository: 'off', at: null } };

const TABLE: [string, PlacedSpec, Observation, Step][] = [
  ['nothing there, no template', spec(), NONE, { kind: 'makeTemplate' }],
  ['nothing there, a template', spec(), { ...NONE, templateReady: true }, { kind: 'clone' }],
  [
    'nothing there of a fork, which needs no template',
    FORK,
    NONE,
    { kind: 'fork', origin: ORIGIN },
  ],
  [
    'lost, and its backups are in a repository',
    { ...FORK, ...RESTORED },
    NONE,
    { kind: 'recover', ...RESTORED },
  ],
  [
    'it runs, and its data is to be restored',
    spec(RESTORED),
    { ...WELL, recovered: false },
    { kind: 'stop', mode: 'immediate', why: 'its data is restored' },
  ],
  [
    'it is down, and its data is to be restored',
    spec(RESTORED),
    { ...DOWN, recovered: false },
    { kind: 'setAside', ...RESTORED },
  ],
  [
    'its data is to be restored, and it must not run',
    spec({ ...RESTORED, power: 'paused' }),
    { ...DOWN, recovered: false },
    { kind: 'settled' },
  ],
  [
    'its data is set aside',
    spec(RESTORED),
    { ...DOWN, directory: 'lost', provisioned: false },
    { kind: 'recover', ...RESTORED },
  ],
  [
    'the machine went down while it was restored',
    spec(RESTORED),
    { ...DOWN, directory: 'incomplete', provisioned: false },
    { kind: 'discard' },
  ],
  [
    'it runs, and gets the data of its parent',
    spec({ upgrade: RESET }),
    { ...WELL, upgrade: 'asked' },
    { kind: 'cloneBeside', upgrade: RESET, origin: ORIGIN },
  ],
  [
    'it does not run, and is to get the data of its parent: its password is read first',
    spec({ upgrade: RESET }),
    { ...DOWN, upgrade: 'asked' },
    { kind: 'start' },
  ],
  [
    'it is not connected, and is to get the data of its parent',
    spec({ upgrade: RESET }),
    { ...WELL, connected: false, upgrade: 'asked' },
    { kind: 'connect' },
  ],
  [
    'the data of its parent is there',
    spec({ upgrade: RESET }),
    { ...WELL, upgrade: 'made' },
    { kind: 'exchange', upgrade: RESET },
  ],
  [
    'it is paused before it gets the data of its parent',
    spec({ upgrade: RESET, power: 'paused' }),
    { ...DOWN, upgrade: 'asked' },
    { kind: 'settled' },
  ],
  ['it is restored', spec(RESTORED), WELL, { kind: 'settled' }],
  [
    'its data is lost, and it was provisioned',
    spec({ provisioned: true }),
    { ...NONE, templateReady: true },
    LOST,
  ],
  ['its data is lost, of a fork', { ...FORK, provisioned: true }, NONE, LOST],
  ['its data is lost, and its directory is not', spec(), { ...DOWN, directory: 'lost' }, LOST],
  [
    'its data is lost while it is being made',
    spec(),
    { ...DOWN, directory: 'lost', provisioned: false },
    { kind: 'discard' },
  ],
  [
    'other data is in its place',
    spec({ provisioned: true }),
    { ...DOWN, provisioned: false },
    { kind: 'refuse', why: expect.stringContaining('not the data that it was provisioned with') },
  ],
  [
    'its data is lost, and it must not run',
    spec({ provisioned: true, power: 'paused' }),
    NONE,
    { kind: 'settled' },
  ],
  [
    'the directory of a paused service is lost: restored when it is started',
    { ...PAUSED, ...RESTORED },
    NONE,
    { kind: 'settled' },
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
  [
    'down, and its PostgreSQL is not installed',
    spec(),
    { ...DOWN, notStartable: 'missing', filesCurrent: false },
    { kind: 'refuse', why: 'missing' },
  ],
  [
    'down for good, and its PostgreSQL is not installed',
    PAUSED,
    { ...DOWN, notStartable: 'missing' },
    { kind: 'settled' },
  ],
  [
    'up, and its PostgreSQL is no longer installed',
    spec(),
    { ...WELL, notStartable: 'missing' },
    { kind: 'settled' },
  ],
  [
    'up, and a restart was requested',
    spec(),
    { ...WELL, server: { phase: 'ready', start: 'restart', placed: true } },
    { kind: 'stop', mode: 'fast', why: 'as requested' },
  ],
  [
    'up with another size, and its PostgreSQL is no longer installed',
    spec(),
    {
      ...WELL,
      notStartable: 'missing',
      server: { phase: 'ready', start: 'otherSettings', placed: true },
    },
    { kind: 'refuse', why: 'missing' },
  ],
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
      server: { phase: 'ready', start: 'otherSettings', placed: true },
    },
    {
      kind: 'wait',
      why: 'the server does not answer; after 20 s it is started again',
      waitMs: 500,
    },
  ],
  [
    'silent for a while and no longer watched',
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
      why: 'the server is starting; after a crash it first recovers from its WAL',
      waitMs: 20,
    },
  ],
  [
    'up with another size',
    spec(),
    {
      ...WELL,
      server: { phase: 'ready', start: 'otherSettings', placed: true },
      filesCurrent: false,
    },
    { kind: 'stop', mode: 'fast', why: 'for its new settings' },
  ],
  [
    'up with another size, and not watched',
    spec(),
    { ...WELL, server: { phase: 'ready', start: 'otherSettings', placed: true }, connected: false },
    { kind: 'stop', mode: 'fast', why: 'for its new settings' },
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
  [
    'up, with the roles of an older release',
    spec(),
    { ...WELL, contentsCurrent: false },
    { kind: 'updateContents' },
  ],
  [
    'up, with an extension that is asked for',
    spec({ extension: { name: 'hypopg', wanted: 'created' } }),
    { ...WELL, extension: 'create', limited: false },
    { kind: 'createExtension' },
  ],
  [
    'up, with an extension that is asked for and needs another library',
    spec({ extension: { name: 'pgaudit', wanted: 'created' } }),
    { ...WELL, server: { phase: 'ready', start: 'otherSettings', placed: true } },
    { kind: 'stop', mode: 'fast', why: 'for its new settings' },
  ],
  [
    'up, with an extension that must go before its library',
    spec({ extension: { name: 'pgaudit', wanted: 'dropped' } }),
    {
      ...WELL,
      extension: 'drop',
      server: { phase: 'ready', start: 'otherSettings', placed: true },
    },
    { kind: 'dropExtension' },
  ],
  ['up, and not held to its size', spec(), { ...WELL, limited: false }, { kind: 'limit' }],
  [
    'up outside of its VPC: it leaves before anything else',
    INSIDE,
    {
      ...WELL,
      server: { phase: 'ready', start: 'otherSettings', placed: false },
      filesCurrent: false,
    },
    { kind: 'stop', mode: 'fast', why: 'to move into the VPC 1000' },
  ],
  [
    'up in a VPC that it has left',
    spec(),
    { ...WELL, server: { phase: 'ready', start: 'current', placed: false } },
    { kind: 'stop', mode: 'fast', why: 'to leave its VPC' },
  ],
  [
    'its pooler is in another network: it is stopped first',
    spec({ pooler: { port: 20001 }, vpc: INSIDE.vpc }),
    {
      ...WELL,
      server: { phase: 'ready', start: 'current', placed: false },
      pooler: { ...pooler, placed: false },
    },
    { kind: 'stopPooler', why: 'to move into the VPC 1000' },
  ],
  [
    'there are disallowed sessions',
    INSIDE,
    { ...WELL, disallowedSessions: 2 },
    { kind: 'endSessions' },
  ],
  [
    'rules first, then disallowed sessions',
    INSIDE,
    { ...WELL, disallowedSessions: 2, filesCurrent: false },
    { kind: 'reload' },
  ],
  [
    'its pooler has disallowed sessions',
    POOLED,
    { ...WELL, pooler: { ...pooler, disallowedSessions: 1 } },
    { kind: 'stopPooler', why: 'with sessions that are no longer allowed' },
  ],
  [
    'up and not provisioned',
    spec(),
    { ...WELL, provisioned: false },
    { kind: 'setFirstPassword', verifier: 'SCRAM' },
  ],
  ['a spare is not provisioned', SPARE, { ...WELL, provisioned: false }, { kind: 'settled' }],
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
  const elsewhere = ['convert', 'openRelay', 'closeRelay'];
  const kinds = [...elsewhere, ...TABLE.map(([, , , { kind }]) => kind)];
  for (const kind of Object.keys(STEP_NAME)) expect(kinds).toContain(kind);
});
