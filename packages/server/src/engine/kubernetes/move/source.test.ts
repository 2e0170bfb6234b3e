import { afterEach, beforeEach, expect, test } from 'vitest';
import type { MoveSource } from '../../moves.ts';
import type { ServiceSpec } from '../../spec.ts';
import {
  CLUSTER,
  ID,
  NAMESPACE,
  newSpec,
  openCloud,
  runServers,
  stopServers,
  until,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import { closeToOthers, refuseUnlogged } from './source.ts';
import { MoveRefused } from '../../moves.ts';

const FENCED = 'cnpg.io/fencedInstances';
const STOPPED = 'howdah.io/stopped-by-move';
const [IN_TIME, LATE] = [false, true].map((isOver) => ({
  isOver,
  isKept: false,
  keep: () => Promise.reject(new Error('its password goes with its data')),
}));

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

function source(): MoveSource {
  const { from } = cloud.engine.moves;
  if ('why' in from) throw new Error(from.why);
  return from;
}

async function running(): Promise<ServiceSpec> {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  return { ...spec, provisioned: true };
}

const annotations = () => Object(cloud.fake.objects.get(CLUSTER)).metadata.annotations;
function annotate(change: Record<string, string | undefined>): void {
  const found = Object(cloud.fake.objects.get(CLUSTER));
  const changed = Object.entries({ ...found.metadata.annotations, ...change });
  const annotations = Object.fromEntries(changed.filter(([, value]) => value !== undefined));
  cloud.fake.put(CLUSTER, { ...found, metadata: { ...found.metadata, annotations } });
}

/** Waits until the region has noticed it. */
const untilStopped = () =>
  until(() =>
    stopping(LATE).then(
      (end) => end === 'shutdown',
      () => false,
    ),
  );
const stopping = (how = IN_TIME) => source().stop(ID, Object(how));

test('a copy logs in by the certificate of the standbys', async () => {
  await running();
  await expect(source().login(ID)).rejects.toThrow(`it has no secret s-${ID}-replication`);
  const data = { 'tls.crt': btoa('certificate'), 'tls.key': btoa('key') };
  cloud.fake.put(`/api/v1${NAMESPACE}/secrets/s-${ID}-replication`, { data });
  expect(await source().login(ID)).toEqual({
    verifier: null,
    certificate: {
      user: 'streaming_replica',
      certificatePem: 'certificate',
      keyPem: 'key',
      authorityPem: expect.stringContaining('BEGIN CERTIFICATE'),
    },
  });
});

test('a service that a move has stopped stays so until the move is given up', async () => {
  const spec = await running();
  annotate({ [FENCED]: '["*"]', [STOPPED]: 'now' });
  await untilStopped();
  const copied = { ...spec, move: { as: 'source', isAborted: false } } as const;
  // By a control plane that has slept meanwhile, also with a change that is written otherwise.
  for (const late of [copied, { ...copied, restarts: 1 }, { ...copied, storageGb: 20 }]) {
    const verdict = await cloud.engine.lifecycle.converge(late, async () => undefined);
    expect(verdict).toMatchObject({
      outcome: 'again',
      detail: 'a move to another region has stopped it',
    });
  }
  // One whose metadata database is older than the move.
  const unknown = await cloud.engine.lifecycle.converge(spec, async () => undefined);
  expect(unknown.detail).toContain('howdah service restart starts it again');
  expect(annotations()).toMatchObject({ [FENCED]: '["*"]', [STOPPED]: 'now' });
  const aborted = { ...spec, move: { as: 'source', isAborted: true } } as const;
  expect(await untilStep(cloud, aborted, 'settled')).toEqual(['start PostgreSQL', 'connect']);
  expect(annotations()).not.toHaveProperty([FENCED]);
  expect(annotations()).not.toHaveProperty([STOPPED]);
});

test('a start that was decided before another stop does not lift its fence', async () => {
  const spec = await running();
  annotate({ [FENCED]: '["*"]', [STOPPED]: 'first' });
  await untilStopped();
  const aborted = { ...spec, move: { as: 'source', isAborted: true } } as const;
  const verdict = await cloud.engine.lifecycle.converge(aborted, async () => {
    annotate({ [STOPPED]: 'second' });
  });
  expect(verdict.outcome).toBe('failed');
  expect(annotations()).toMatchObject({ [FENCED]: '["*"]', [STOPPED]: 'second' });
});

test('a paused service that a move has stopped starts like any other', async () => {
  const spec = await running();
  annotate({ [FENCED]: '["*"]', [STOPPED]: 'now' });
  await untilStopped();
  const aborted = { ...spec, move: { as: 'source', isAborted: true } } as const;
  await cloud.engine.lifecycle.converge({ ...aborted, power: 'paused' }, async () => undefined);
  stopServers(cloud);
  await untilStep(cloud, { ...aborted, power: 'paused' }, 'settled');
  expect(annotations()).toHaveProperty([FENCED]);
  await cloud.engine.lifecycle.converge(aborted, async () => undefined);
  expect(annotations()).not.toHaveProperty([FENCED]);
});

test.each([
  ['stopped by others', { [FENCED]: '["*"]' }, IN_TIME, 'its server was stopped meanwhile'],
  ['not stopped in time', {}, LATE, 'it could not be stopped in time'],
  ['started by others', { [STOPPED]: 'now' }, IN_TIME, 'somebody has started it again meanwhile'],
])('a service that is %s does not move', async (_name, change, how, why) => {
  await running();
  annotate(change);
  const refusal = () => stopping(how).then(String, (error: Error) => error.message);
  await until(async () => (await refusal()) === why);
  await expect(stopping(how)).rejects.toThrow(MoveRefused);
});

const MOVED = { former: { host: 'a', port: 1 }, current: { host: 'b', port: 2 } };

test('a service that has moved keeps its volume, and its pods end', async () => {
  await running();
  annotate({ [FENCED]: '["*"]', [STOPPED]: 'now' });
  await source().retire(ID, MOVED);
  expect(annotations()).toMatchObject({ [FENCED]: '["*"]', 'cnpg.io/hibernation': 'on' });
  stopServers(cloud);
  // The Cluster is left alone once its pods have ended.
  annotate({ 'cnpg.io/hibernation': 'noticed' });
  await until(async () => {
    await source().retire(ID, MOVED);
    const is = annotations()['cnpg.io/hibernation'];
    annotate({ 'cnpg.io/hibernation': 'noticed' });
    return is === 'noticed';
  });
});

test('sessions that a stop would wait for end, once nothing is new that a copy lacks', async () => {
  const asked: string[] = [];
  let lag: string | null = '0';
  const answering = (names: Record<string, string>) => ({
    query: async (sql: string) => {
      asked.push(sql);
      if (sql.includes('pg_current_wal_lsn')) return { rows: [{ lag }] };
      const found = Object.entries(names).find(([part]) => sql.includes(part));
      return { rows: found === undefined ? [] : [{ name: found[1] }] };
    },
  });
  await closeToOthers(Object(answering({})));
  expect(asked.at(-1)).toContain('pg_terminate_backend');
  asked.length = 0;
  await expect(closeToOthers(Object(answering({ slot_name: 'cdc' })))).rejects.toThrow(MoveRefused);
  // The copy may have the shutdown of an earlier server, and nothing of what came after.
  lag = null;
  await expect(closeToOthers(Object(answering({})))).rejects.toThrow('does not follow');
  expect(asked.join('\n')).not.toContain('pg_terminate_backend');
});

test('an unlogged table that a second database has got keeps a service from moving', async () => {
  const tables = new Map([
    ['tsdb', []],
    ['elsewhere', [{ name: 'q' }]],
  ]);
  const names = ['template1', ...tables.keys()].map((name) => ({ name }));
  const examine = () =>
    refuseUnlogged((database, work) =>
      work(
        Object({
          query: async () => ({ rows: database === null ? names : (tables.get(database) ?? null) }),
        }),
      ),
    );
  await expect(examine()).rejects.toThrow(MoveRefused);
  tables.set('elsewhere', []);
  await examine();
});

test('a service on Kubernetes gets no roles for its copy', async () => {
  const roles = { reserved: [], roles: ['create role x'], databases: [] };
  await expect(source().admit(ID, roles)).rejects.toThrow(MoveRefused);
  await expect(source().admit(ID, { ...roles, roles: [] })).resolves.toBe(undefined);
});
