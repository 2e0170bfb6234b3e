import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { undo } from './move-abort.ts';

const MOVE = { id: 'move', state: 'abort', from: 'local', to: 'kube', withheld: false };
const SEEN = { reachable: true, present: true, provisioned: true };
const SETTLED = { did: null, detail: null, seen: SEEN, outcome: 'settled' };
const STARTING = { ...SETTLED, did: 'start PostgreSQL', outcome: 'again', waitMs: 0 };

type Parts = {
  move?: object;
  service?: object;
  operation?: string;
  /** The verdicts of the engine of the service, in turn. */
  own: readonly object[];
  dismiss?: () => Promise<void>;
  giveBack?: () => Promise<void>;
  write?: () => Promise<unknown>;
};

/** A service whose move is aborted, and what was done for it. */
function aborted({ move = {}, service: more = {}, operation, own, ...parts }: Parts) {
  const { dismiss, giveBack, write } = parts;
  const done: string[] = [];
  const verdicts = [...own];
  const service = {
    id: 'id',
    project_id: 'project',
    parent_id: null,
    power: 'running',
    deleting: false,
    purge: false,
    kept: null,
    recovery: null,
    reachable: true,
    provisioned: true,
    upgrade: null,
    vpc_id: null,
    has_gateway: false,
    read_replica_sets: [],
    addons: [],
    preload: [],
    move: { ...MOVE, ...move },
    ...more,
  };
  const note = (name: string, part: () => Promise<unknown> = async () => undefined) => {
    return async () => {
      done.push(name);
      return part();
    };
  };
  const from = { dismiss: note('dismiss', dismiss), giveBack: note('give back', giveBack) };
  const next = async () => verdicts.shift() ?? SETTLED;
  const lifecycle = { converge: note('converge', next), remove: note('remove data', next) };
  const transaction = () => ({ execute: note('write', write ?? (async () => service)) });
  const context = {
    region: { engine: { lifecycle, moves: { from } } },
    store: { db: { transaction } },
    restoreWindowMs: 1000,
  };
  const running = operation === undefined ? null : { id: 'operation', kind: operation };
  const work = { id: 'id', token: 'token', service, operation: running, steps: [] };
  const begin = async () => undefined;
  const round = (remove: () => Promise<object>) =>
    undo(Object(context), Object(work), begin, Object(note('remove copy', remove)));
  return { done, round };
}

const settle = async () => SETTLED;
const fail = (why: string) => () => Promise.reject(new Error(why));

test('roles left open by a stop are closed once the server is reached', async () => {
  const answers = [fail('it does not run'), async () => undefined];
  const dismiss = async () => answers.shift()?.();
  const own = [STARTING, STARTING];
  const { done, round } = aborted({ own, operation: 'start', dismiss });
  expect(await round(settle)).toMatchObject({ did: 'start PostgreSQL' });
  expect(done.splice(0)).toEqual(['dismiss', 'converge']);
  // The operation of the service goes on meanwhile.
  expect(await round(settle)).toMatchObject({ did: 'start PostgreSQL' });
  expect(done).toEqual(['dismiss', 'write', 'converge']);
});

test('closed roles are dropped again at the end only, unless a restore has them', async () => {
  const closed = { move: { closed: true }, operation: 'start' };
  const { done, round } = aborted({ ...closed, own: [STARTING] });
  await round(settle);
  expect(done).toEqual(['converge']);
  const restored = aborted({ ...closed, own: [STARTING], service: { recovery: {} } });
  await restored.round(settle);
  expect(restored.done).toEqual(['dismiss', 'converge']);
});

test('an owner gets the functions back although the cluster does not answer', async () => {
  const move = { closed: true, withheld: true };
  const { done, round } = aborted({ move, own: [SETTLED] });
  expect(await round(fail('nobody answers'))).toMatchObject({
    outcome: 'failed',
    reason: 'nobody answers',
  });
  // The roles too: a restore may have brought them back.
  expect(done).toEqual(['converge', 'dismiss', 'give back', 'remove copy', 'write']);
});

test('a copy is removed although the functions cannot be given back', async () => {
  const move = { closed: true, withheld: true };
  const { done, round } = aborted({ move, own: [SETTLED], giveBack: fail('a lock') });
  expect(await round(settle)).toMatchObject({
    outcome: 'failed',
    reason: 'the role functions are not given back: a lock',
  });
  expect(done).toEqual(['converge', 'dismiss', 'give back', 'remove copy']);
});

test('a round that loses its claim waits for the removal of the copy', async () => {
  const move = { closed: true, withheld: true };
  const { done, round } = aborted({ move, own: [SETTLED], write: fail('the claim is lost') });
  let endRemoval: (verdict: object) => void = () => undefined;
  const removing = new Promise<object>((resolve) => (endRemoval = resolve));
  let isOver = false;
  const ended = round(() => removing).finally(() => (isOver = true));
  await expect.poll(() => done.includes('write')).toBe(true);
  await sleep(10);
  expect(isOver).toBe(false);
  endRemoval(SETTLED);
  expect(await ended).toMatchObject({ outcome: 'failed', reason: 'the claim is lost' });
});
