import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type DatabaseConnection,
} from 'kysely';
import { expect, test, vi } from 'vitest';
import { givenBack, ClaimLost, lockClaimed } from './claims.ts';
import type { Tables, Tx } from './tables.ts';

const NOW = Date.parse('2026-11-27T10:00:00Z');
const at = (ms: number): Date => new Date(NOW + ms);

test.each<[string, Date | null, number | null, Date | null]>([
  ['nobody made it due: it is due again after the wait', null, 500, at(500)],
  ['nobody made it due, and nothing is awaited', null, null, null],
  ['it was made due meanwhile: it stays due', at(-10), 500, at(-10)],
  ['it was made due meanwhile, and nothing is awaited: it stays due', at(-10), null, at(-10)],
  ['it is due later than the wait ends', at(2000), 500, at(500)],
])('%s', (_, dueAt, waitMs, expected) => {
  vi.spyOn(Date, 'now').mockReturnValue(NOW);
  try {
    expect(givenBack(Object({ due_at: dueAt }), waitMs)).toEqual({
      lease_token: null,
      lease_until: null,
      due_at: expected,
    });
  } finally {
    vi.restoreAllMocks();
  }
});

/** A transaction in which each statement finds these rows. */
async function withRows<T>(rows: readonly object[], work: (tx: Tx) => Promise<T>): Promise<T> {
  class Driver extends DummyDriver {
    override async acquireConnection(): Promise<DatabaseConnection> {
      return { executeQuery: async () => Object({ rows }), async *streamQuery() {} };
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
  return db.transaction().execute(work);
}

test('results are written by the holder of the claim only', async () => {
  const row = { id: 'service', lease_token: 'mine', operation_id: null };
  const lock = (rows: readonly object[], token: string) =>
    withRows(rows, (tx) => lockClaimed(tx, 'service', token, null));
  expect(await lock([row], 'mine')).toMatchObject({ service: row, operation: null });
  await expect(lock([row], 'of before')).rejects.toThrow(ClaimLost);
  await expect(lock([{ ...row, lease_token: null }], 'mine')).rejects.toThrow(ClaimLost);
  await expect(lock([], 'mine')).rejects.toThrow(ClaimLost);
});
