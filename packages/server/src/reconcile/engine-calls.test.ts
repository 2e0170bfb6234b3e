/** How often the rounds call the engine: what is the same for all services is asked once. */
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
import { createRounds, type Rounds } from '../lib/rounds.ts';
import { TUNING, type RoundName } from '../lib/tuning.ts';
import type { Tables } from '../store/tables.ts';
import { createSampler } from './sampler.ts';
import { createStorageGuard } from './storage.ts';
import { createWatch } from './warnings.ts';

/** A metadata database in which all lists of services have these. */
function databaseOf(services: number): Kysely<Tables> {
  const rows = Array.from({ length: services }, (_, number) => ({
    id: `service${number}`,
    service_type: 'POSTGRES',
    status: 'READY',
    warnings: [],
    storage_gb: 10,
    cpu_bound: null,
    project_id: 'project',
  }));
  class Driver extends DummyDriver {
    override async acquireConnection(): Promise<DatabaseConnection> {
      return {
        executeQuery: async ({ sql }) => {
          const isList = /^select .* from "services"/.test(sql) && !sql.includes('for update');
          return Object({ rows: isList ? rows : [] });
        },
        async *streamQuery() {},
      };
    }
  }
  return new Kysely<Tables>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => new Driver(),
      createIntrospector: (of) => new PostgresIntrospector(of),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
}

/** Counts the calls of each function of an engine, by `facet.function`. */
function countedEngine(): { engine: object; calls: Map<string, number> } {
  const calls = new Map<string, number>();
  const answers: Record<string, Record<string, unknown>> = {
    storage: {
      disk: { usedPercent: 1, freeBytes: 99, totalBytes: 100 },
    },
    storageGuard: {
      keepReserve: { did: null, heldBytes: 0, removedWal: [] },
      keepQuota: { stop: null, changed: false },
    },
    observe: { warnings: [], usage: [] },
    backups: { keep: false },
  };
  const facets = Object.entries(answers).map(([facet, functions]) => [
    facet,
    Object.fromEntries(
      Object.entries(functions).map(([name, answer]) => [
        name,
        async () => {
          calls.set(`${facet}.${name}`, (calls.get(`${facet}.${name}`) ?? 0) + 1);
          return answer;
        },
      ]),
    ),
  ]);
  return { engine: Object.fromEntries(facets), calls };
}

/** The calls of one run of a round. */
async function callsOf(name: RoundName, services: number): Promise<Record<string, number>> {
  const { engine, calls } = countedEngine();
  const store = Object({ db: databaseOf(services) });
  const region = Object({ code: 'simulated', engine });
  const rounds: Rounds = createRounds(TUNING.rounds, QUIET);
  createWatch(store, region, QUIET, rounds);
  createSampler(store, region, QUIET, rounds, async () => undefined);
  createStorageGuard(store, region, QUIET, rounds, {
    warn: async () => undefined,
    restoreWindowMs: 0,
  });
  await rounds.run(name);
  expect(rounds.figures().find((one) => one.name === name)).toMatchObject({ failures: 0 });
  return Object.fromEntries(calls);
}

test.each([
  ['warnings', { 'storage.disk': 1, 'observe.warnings': 1000 }],
  ['samples', { 'observe.usage': 1000 }],
  ['snapshots', { 'backups.keep': 1000 }],
  ['storage', { 'storageGuard.keepReserve': 1, 'storage.disk': 1, 'storageGuard.keepQuota': 1000 }],
] as const)('the round %s asks each service once, and the region once', async (name, expected) => {
  expect(await callsOf(name, 1000)).toEqual(expected);
});
