import type { Warning } from '@howdah/contract';
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
import { createWatch } from './warnings.ts';

const WARNING: Warning = { code: 'ARCHIVE', message: 'it is late' };
const ROW = { id: 'abcde12345', service_type: 'POSTGRES', status: 'READY' };

/** The statements of the first round with a service, which has warnings in the database. */
async function firstRound(known: readonly Warning[], now: readonly Warning[]): Promise<string[]> {
  const statements: string[] = [];
  class Driver extends DummyDriver {
    override async acquireConnection(): Promise<DatabaseConnection> {
      return {
        executeQuery: async ({ sql }) => {
          statements.push(sql);
          const rows = statements.length === 1 ? [{ ...ROW, warnings: known }] : [];
          return Object({ rows });
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
  const engine = {
    storage: { disk: async () => ({ usedPercent: 1, freeBytes: 99, totalBytes: 100 }) },
    observe: { warnings: async () => now },
  };
  const rounds = createRounds(TUNING.rounds, QUIET);
  const log = { warn: () => undefined, info: () => undefined };
  const watch = createWatch(Object({ db }), Object({ code: 'kube', engine }), Object(log), rounds);
  watch.start();
  // It stops before the next service, and waits for this one.
  await expect.poll(() => statements.length).toBeGreaterThan(1);
  await watch.close();
  return statements;
}

const locks = (statements: readonly string[]): string[] =>
  statements.filter((statement) => statement.includes('for update'));

test('a service whose warnings are as before is not locked', async () => {
  expect(locks(await firstRound([WARNING], [WARNING]))).toEqual([]);
  expect(locks(await firstRound([], []))).toEqual([]);
  expect(locks(await firstRound([], [WARNING]))).not.toEqual([]);
  expect(locks(await firstRound([WARNING], []))).not.toEqual([]);
});
