import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import { expect, test } from 'vitest';
import type { Tables } from '../store/tables.ts';
import { createVerifier } from './verifier.ts';

/** The statements of the first round in a region that has nothing to verify. */
async function firstRound(possible: boolean): Promise<string[]> {
  const statements: string[] = [];
  const { promise, resolve } = newPromise();
  const db = new Kysely<Tables>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (of) => new PostgresIntrospector(of),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
    log: ({ query }) => void statements.push(query.sql),
  });
  const capabilities = {
    actions: { verifyBackup: { possible } },
    // Asked last.
    get offMachine() {
      resolve();
      return { missing: 'no repository' };
    },
  };
  const verifier = createVerifier(
    Object({ store: { db }, region: { code: 'kube', engine: { capabilities } }, everyMs: 1000 }),
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

const isDue = (statement: string): boolean => statement.includes('last.at <');

test('no verification is begun in a region that has none', async () => {
  expect((await firstRound(true)).filter(isDue)).toHaveLength(1);
  const statements = await firstRound(false);
  expect(statements).toHaveLength(1);
  expect(statements.filter(isDue)).toEqual([]);
});
