import { expect, test } from 'vitest';
import { MoveRefused } from '../engine/moves.ts';
import { moveOnce, removeSource, switchOver, createTurns, examineBeforeSwitch } from './move.ts';

const MOVE = {
  id: 'move',
  state: 'switch',
  from: 'local',
  source: { host: 'a', port: 1 },
  to: 'kube',
  toAlias: null,
  endpoint: { host: 'b', port: 2 },
  prepared: true,
  silent: null,
  switched: new Date(0).toISOString(),
  kept: true,
  until: null,
  problem: null,
};

/** A move whose metadata database answers transactions in turn. */
function moving(move: object, parts: object, ...answers: ((service: object) => unknown)[]) {
  const service = { id: 'id', move, reachable: false, deleting: false, provisioned: true };
  const execute = async () => {
    const answer = answers.shift();
    if (answer === undefined) throw new Error('one transaction too many');
    return answer(service);
  };
  const context = { store: { db: { transaction: () => ({ execute }) } }, restoreWindowMs: 1000 };
  const work = { id: 'id', token: 'token', service, operation: null, steps: [] };
  return Object({ context, work, move, begin: async () => undefined, ...parts });
}

const SWITCH = {
  from: { stop: async () => 5n },
  to: { position: async () => ({ isFollowing: true, replayed: 6n, hasShutdown: false }) },
};
const fail = () => {
  throw new Error('duplicate key');
};

test('a service is started again where it was if it cannot be handed over in time', async () => {
  const written = (service: object) => service;
  expect(await switchOver(moving(MOVE, SWITCH, fail, written))).toMatchObject({
    outcome: 'again',
    detail: 'duplicate key',
  });
});

test('a hand-over that fails is tried again as long as there is time', async () => {
  const recent = { ...MOVE, switched: new Date(Date.now() + 60_000).toISOString() };
  await expect(switchOver(moving(recent, SWITCH, fail))).rejects.toThrow('duplicate key');
});

test('a former server whose time is over is removed, whatever its service does', async () => {
  const kept = { ...MOVE, state: 'kept', until: new Date(0).toISOString() };
  const removed: string[] = [];
  const lifecycle = {
    remove: async (id: string) => {
      removed.push(id);
      return { outcome: 'settled' };
    },
  };
  const one = moving(kept, { source: { engine: { lifecycle } } }, (service) => service);
  one.work.operation = { id: 'resize', kind: 'resize' };
  expect(await removeSource(one)).toBe(null);
  expect(removed).toEqual(['id']);
});

test('a server that was killed, as it did not stop within the limit, ends the move', async () => {
  const killed = async () => {
    throw new MoveRefused('its server was not shut down in order');
  };
  const recent = { ...MOVE, switched: new Date(Date.now() + 60_000).toISOString() };
  let writes = 0;
  const written = (service: object) => {
    writes += 1;
    return service;
  };
  const one = moving(recent, { ...SWITCH, from: { stop: killed } }, written);
  expect(await switchOver(one)).toMatchObject({
    outcome: 'again',
    detail: 'its server was not shut down in order',
  });
  // The end of the move is recorded at once.
  expect(writes).toBe(1);
});

/** Both regions of a move, and which of their parts were asked. */
function regions(parts: Readonly<Record<string, () => Promise<unknown>>>) {
  const asked: string[] = [];
  const part = (name: string) => async () => {
    asked.push(name);
    return parts[name]?.() ?? { outcome: 'settled', seen: { reachable: true } };
  };
  const lifecycle = (code: string) => ({
    converge: part(`${code} converge`),
    remove: part(`${code} remove`),
  });
  const from = { giveBack: part('give back'), progress: part('progress') };
  const of = (code: string) => ({
    engine: { lifecycle: lifecycle(code), moves: code === 'local' ? { from } : { to: {} } },
  });
  return { asked, of };
}

test('the former server of a purged service does not wait for a cluster that is gone', async () => {
  const { asked, of } = regions({});
  const one = moving({ ...MOVE, state: 'moved' }, {}, (service) => service);
  Object.assign(one.work.service, { project_id: null, parent_id: null, deleting: true });
  Object.assign(one.context, { regions: { of }, region: of('kube') });
  expect(await moveOnce(one.context, one.work, one.begin)).toBe(null);
  expect(asked).toEqual(['local remove']);
});

test('an owner gets the functions back after an examination without a switch', async () => {
  const never = () => new Promise(() => undefined);
  const { asked, of } = regions({ 'give back': never });
  const one = moving({ ...MOVE, state: 'copy', switched: null, withheld: true }, {});
  Object.assign(one.work.service, { vpc_id: null, upgrade: null, parent_id: null });
  // The attempt of this service does not end: no other test has this id.
  Object.assign(one.work, { id: 'examined', operation: { id: 'operation', kind: 'move' } });
  Object.assign(one.context, { regions: { of }, region: of('local') });
  // No other examination begins meanwhile.
  expect(await moveOnce(one.context, one.work, one.begin)).toMatchObject({
    outcome: 'again',
    detail: 'its owner gets the role functions back',
  });
  expect(asked).toEqual(['local converge', 'give back']);
});

/** A service of the region kube that has been handed over to this machine. */
function arriving(state: 'moved' | 'kept', retire: () => Promise<void>, awaitsRestart: boolean) {
  const converge = async () => ({ outcome: 'settled', seen: { reachable: true } });
  const position = async () => ({ isFollowing: false, awaitsRestart });
  const of = (code: string) => ({
    engine: {
      lifecycle: { converge },
      moves: code === 'kube' ? { from: { retire } } : { to: { position, finish: async () => {} } },
    },
  });
  const until = state === 'kept' ? new Date(Date.now() + 60_000).toISOString() : null;
  const switched = new Date().toISOString();
  const move = { ...MOVE, from: 'kube', to: 'local', state, until, switched };
  const one = moving(move, {}, (service) => service);
  Object.assign(one.work.service, { power: 'running', vpc_id: null, upgrade: null, kept: null });
  Object.assign(one.work.service, { parent_id: null, project_id: 'project', recovery: null });
  Object.assign(one.work.service, MOVE.endpoint);
  Object.assign(one.context, { regions: { of }, region: of('local') });
  return one;
}

test.each(['moved', 'kept'] as const)(
  'a service whose move is %s does not wait for its former cluster to give up its pods',
  async (state) => {
    const tried: unknown[] = [];
    const retire = async (...asked: unknown[]) => {
      tried.push(asked);
      throw new Error('its Kubernetes cluster does not answer');
    };
    const one = arriving(state, retire, false);
    const verdict = await moveOnce(one.context, one.work, one.begin);
    expect(verdict).toMatchObject(
      state === 'moved' ? { did: 'begin to accept writes' } : Object(null),
    );
    // With its endpoints, for clients of the former one.
    expect(tried).toEqual([['id', { former: MOVE.source, current: MOVE.endpoint }]]);
  },
);

test('a move ends once its copy was restarted with the settings of a primary', async () => {
  const one = arriving('moved', async () => undefined, true);
  expect(await moveOnce(one.context, one.work, one.begin)).toMatchObject({
    outcome: 'again',
    detail: 'its server is restarted with the settings of a primary',
  });
});

test('a copy on a machine is not forgotten while its region is not served', async () => {
  const { RegionNotServed } = await import('../engine/regions.ts');
  const settled = { outcome: 'settled', seen: { reachable: true } };
  const moves = (place: string) => ({ place, from: { dismiss: async () => undefined } });
  const region = (place: string) => ({
    engine: { lifecycle: { converge: async () => settled }, moves: moves(place) },
  });
  const of = (code: string) => {
    throw new RegionNotServed(code);
  };
  const outcomes: unknown[] = [];
  for (const place of ['cluster', 'machine']) {
    const move = { ...MOVE, state: 'abort', closed: true, withheld: false };
    const one = moving(move, {}, (service) => service);
    const query = {
      selectAll: () => query,
      where: () => query,
      executeTakeFirst: async () => null,
    };
    Object.assign(one.context.store.db, { selectFrom: () => query });
    Object.assign(one.work.service, { power: 'running', recovery: null, read_replica_sets: [] });
    Object.assign(one.work.service, { project_id: 'project', kept: null, parent_id: null });
    Object.assign(one.work.service, { vpc_id: null, upgrade: null, addons: [], preload: [] });
    Object.assign(one.context, { regions: { of }, region: region(place) });
    const verdict = await moveOnce(one.context, one.work, one.begin);
    outcomes.push([place, verdict?.outcome, verdict?.detail]);
  }
  expect(outcomes).toEqual([
    ['cluster', 'failed', expect.stringContaining('is switched off')],
    ['machine', 'again', 'nothing is left of the copy'],
  ]);
});

/** Parts of a move that write down which of their calls were made. */
function parts(lagBytes: number | null) {
  const calls: string[] = [];
  const call =
    <T>(name: string, answer: T) =>
    async (): Promise<T> => {
      calls.push(name);
      return answer;
    };
  const from = {
    checkpoint: call('checkpoint', undefined),
    progress: call('progress', { mayLogIn: true, lagBytes }),
    withhold: call('withhold', undefined),
    read: call('read', { bytes: 1 }),
  };
  const versions = [{ name: 'vector', version: '0.8.0' }];
  const to = {
    describe: call('describe', { missing: [] }),
    versions: call('versions', versions),
  };
  return { calls, from: Object(from), to: Object(to), place: 'machine' as const };
}

test('a service is examined last: what takes time goes before it', async () => {
  const { calls, ...both } = parts(0);
  const { found } = await examineBeforeSwitch(both, 'id');
  expect(calls).toEqual(['checkpoint', 'progress', 'describe', 'versions', 'withhold', 'read']);
  expect(found).toMatchObject({ data: { bytes: 1 }, target: { versions: [{ name: 'vector' }] } });
});

test('a copy that fell behind during the checkpoint is waited for', async () => {
  const { calls, ...both } = parts(1e9);
  expect(await examineBeforeSwitch(both, 'id')).toMatchObject({ found: null });
  expect(calls).toEqual(['checkpoint', 'progress']);
});

test('few moves are examined at a time, and each once a minute', () => {
  const turns = createTurns();
  const enter = (id: string, nowMs: number) => turns.enter({ id }, nowMs);
  const leave = enter('one', 0);
  expect(enter('two', 0)).not.toBe(null);
  expect(enter('three', 0)).toBe(null);
  leave?.();
  expect(enter('one', 59_999)).toBe(null);
  expect(enter('three', 59_999)).not.toBe(null);
  expect(enter('one', 60_000)).toBe(null);
});

test('a move is examined again after a minute', () => {
  const turns = createTurns();
  turns.enter({ id: 'one' }, 0)?.();
  expect(turns.enter({ id: 'one' }, 60_000)).not.toBe(null);
});
