/** Which services the round of the suspensions takes the claim of, and which it makes due. */
import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type DatabaseConnection,
} from 'kysely';
import { expect, test } from 'vitest';
import { EngineUnavailable } from '../engine/engine.ts';
import { QUIET } from '../lib/log.ts';
import { createRounds } from '../lib/rounds.ts';
import { TUNING } from '../lib/tuning.ts';
import type { Tables } from '../store/tables.ts';
import { createSuspensions } from './suspensions.ts';

/** A metadata database with a service that may sleep, or sleeps. `sql`: what it was asked. */
function databaseOf(isSuspended: boolean): { db: Kysely<Tables>; sql: string[] } {
  const asked: string[] = [];
  class Driver extends DummyDriver {
    override async acquireConnection(): Promise<DatabaseConnection> {
      return {
        executeQuery: async ({ sql }) => {
          asked.push(sql);
          const isListed = sql.includes(`"suspended_at" is ${isSuspended ? 'not null' : 'null'}`);
          return Object({ rows: isListed ? [{ id: 'sleeper', auto_suspend_seconds: 60 }] : [] });
        },
        async *streamQuery() {},
      };
    }
  }
  const db = new Kysely<Tables>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => new Driver(),
      createIntrospector: (of) => new PostgresIntrospector(of),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
  return { db, sql: asked };
}

/**
 * Runs two rounds.
 *
 * @returns the statements that changed services, and how often the engine was asked for holders
 */
async function changesOf(
  isSuspended: boolean,
  awake: Iterable<[string, number | null]>,
  prepare: () => Promise<boolean>,
): Promise<{ changes: string[]; asked: number }> {
  let asked = 0;
  const sleep = {
    awake: async () => new Map(awake),
    prepare: () => {
      asked += 1;
      return prepare();
    },
    fallAsleep: async () => true,
  };
  const { db, sql } = databaseOf(isSuspended);
  const region = Object({ code: 'local', engine: { sleep } });
  const rounds = createRounds(TUNING.rounds, QUIET);
  createSuspensions({ store: Object({ db }), region, log: QUIET, rounds });
  await rounds.run('suspensions');
  await rounds.run('suspensions');
  const figures = rounds.figures().find(({ name }) => name === 'suspensions');
  expect(figures).toMatchObject({ failures: 0 });
  return { changes: sql.filter((one) => one.includes('update')), asked };
}

const IDLE_MS = 61_000;

test.each([
  ['that something holds', async () => false],
  [
    'whose server does not answer',
    async () => {
      throw new EngineUnavailable('its server does not accept connections');
    },
  ],
])('a service %s keeps its claim, and is not asked in each round', async (_which, prepare) => {
  const found = await changesOf(false, [['sleeper', IDLE_MS]], prepare);
  expect(found).toEqual({ changes: [], asked: 1 });
});

test.each([
  ['a client is there', [['sleeper', null]]],
  ['a client was there', [['sleeper', IDLE_MS - 2000]]],
  ['its relay is not open', []],
] as [string, [string, number | null][]][])('a service stays awake: %s', async (_why, awake) => {
  expect(await changesOf(false, awake, async () => true)).toEqual({ changes: [], asked: 0 });
});

test('a claim to fall asleep does not change when the service is due', async () => {
  const { changes } = await changesOf(false, [['sleeper', IDLE_MS]], async () => true);
  expect(changes[0]).toContain('"lease_token"');
  expect(changes.filter((sql) => sql.includes('"due_at" ='))).toEqual([]);
});

test('a service that was recorded as asleep and is awake is due', async () => {
  const awake = await changesOf(true, [['sleeper', null]], async () => true);
  expect(awake.changes).toHaveLength(2);
  expect(awake.changes[0]).toContain('set due_at = now()');
  expect(await changesOf(true, [], async () => true)).toMatchObject({ changes: [] });
});
