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
  return (await runRounds(1, known, now)).statements;
}

/** @param usedPercent of the disk */
async function runRounds(
  times: number,
  known: readonly Warning[],
  now: readonly Warning[],
  usedPercent = 1,
): Promise<{ statements: string[]; logged: string[] }> {
  const statements: string[] = [];
  const logged: string[] = [];
  class Driver extends DummyDriver {
    override async acquireConnection(): Promise<DatabaseConnection> {
      return {
        executeQuery: async ({ sql }) => {
          statements.push(sql);
          const isList = sql.includes('from "services"') && sql.includes('"service_type"');
          const rows = isList && !sql.includes('for update') ? [{ ...ROW, warnings: known }] : [];
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
    storage: { disk: async () => ({ usedPercent, freeBytes: 99, totalBytes: 100 }) },
    observe: { warnings: async () => now },
  };
  const rounds = createRounds(TUNING.rounds, QUIET);
  const note = (_facts: object, message: string): void => void logged.push(message);
  const log = { warn: note, info: note };
  const watch = createWatch(Object({ db }), Object({ code: 'kube', engine }), Object(log), rounds);
  for (let run = 0; run < times; run += 1) await rounds.run('warnings');
  await watch.close();
  return { statements, logged };
}

const locks = (statements: readonly string[]): string[] =>
  statements.filter((statement) => statement.includes('for update'));

test('a full disk is a warning of the region, once, and changes no service', async () => {
  const { statements, logged } = await runRounds(2, [], [], 91);
  expect(locks(statements)).toEqual([]);
  expect(logged).toEqual(['a region has a warning']);
});

test('a service whose warnings are as before is not locked', async () => {
  expect(locks(await firstRound([WARNING], [WARNING]))).toEqual([]);
  expect(locks(await firstRound([], []))).toEqual([]);
  expect(locks(await firstRound([], [WARNING]))).not.toEqual([]);
  expect(locks(await firstRound([WARNING], []))).not.toEqual([]);
});
