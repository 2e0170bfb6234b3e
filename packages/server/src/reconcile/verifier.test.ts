import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type DatabaseConnection,
} from 'kysely';
import { expect, test } from 'vitest';
import { QUIET } from '../lib/log.ts';
import { createRounds } from '../lib/rounds.ts';
import { TUNING } from '../lib/tuning.ts';
import type { Tables } from '../store/tables.ts';
import { createVerifier } from './verifier.ts';

/** The statements of the first round in a region. @param waiting its verifications by users */
async function firstRound(possible: boolean, waiting: readonly object[] = []): Promise<string[]> {
  const statements: string[] = [];
  const { promise, resolve } = newPromise();
  class Driver extends DummyDriver {
    override async acquireConnection(): Promise<DatabaseConnection> {
      return {
        executeQuery: async ({ sql }) => {
          statements.push(sql);
          if (isEnd(sql)) resolve();
          return Object({ rows: isList(sql) ? waiting : [] });
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
  const capabilities = {
    actions: { verifyBackup: { possible } },
    // Asked last if nothing waits.
    get offMachine() {
      if (waiting.length === 0) resolve();
      return { missing: 'no repository' };
    },
  };
  const verifier = createVerifier(
    Object({
      store: { db },
      region: { code: 'kube', engine: { capabilities } },
      log: QUIET,
      rounds: createRounds(TUNING.rounds, QUIET),
      everyMs: 1000,
    }),
  );
  verifier.start();
  await promise;
  await verifier.close();
  return statements;
}

function newPromise() {
  let resolve = (): void => undefined;
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

const isEnd = (statement: string): boolean => statement.startsWith('update "operations"');
const isList = (statement: string): boolean => statement.startsWith('select * from "operations"');
const isDue = (statement: string): boolean => statement.includes('last.at <');

test('no verification is begun in a region that has none', async () => {
  expect((await firstRound(true)).filter(isDue)).toHaveLength(1);
  expect((await firstRound(false)).filter(isDue)).toEqual([]);
});

test('a user who asks again and again holds up no verification that is due', async () => {
  const asked = { id: 'asked', service_id: 'service', steps: [], created: new Date() };
  const beside = await firstRound(true, [{ ...asked, requested_by: 'a key' }]);
  expect(beside.filter(isDue)).toHaveLength(1);
  // One at a time.
  const after = await firstRound(true, [{ ...asked, requested_by: 'howdah' }]);
  expect(after.filter(isDue)).toEqual([]);
  expect(after.filter(isEnd)).toHaveLength(1);
});
