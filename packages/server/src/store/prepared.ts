/**
 * Prepares statements, so that the metadata database keeps their plans: planning one takes longer
 * than executing it.
 */
import type { PostgresCursor, PostgresPool, PostgresPoolClient, PostgresQueryResult } from 'kysely';
import type { Pool, PoolClient } from 'pg';

/** The most plans of a connection; further statements are planned each time. */
const MAX_PLANS = 500;

/**
 * A pool for the query builder that prepares statements at their first use on a connection. Those
 * without values are not prepared: `begin` needs no plan.
 */
export function preparing(pool: Pool): PostgresPool {
  const names = new Map<string, string>();
  const wrapped = new WeakMap<PoolClient, PostgresPoolClient>();

  const nameOf = (text: string): string | undefined => {
    if (!names.has(text) && names.size < MAX_PLANS) names.set(text, `plan_${names.size}`);
    return names.get(text);
  };

  const wrap = (client: PoolClient): PostgresPoolClient => {
    function query<Row>(
      text: string,
      values: readonly unknown[],
    ): Promise<PostgresQueryResult<Row>>;
    function query<Row>(cursor: PostgresCursor<Row>): PostgresCursor<Row>;
    function query(text: unknown, values: readonly unknown[] = []): unknown {
      if (typeof text !== 'string')
        throw new Error('the metadata database is read without cursors');
      return client.query(
        values.length === 0 ? { text } : { name: nameOf(text), text, values: [...values] },
      );
    }
    return { query, release: () => client.release() };
  };

  return {
    connect: async () => {
      const client = await pool.connect();
      const known = wrapped.get(client) ?? wrap(client);
      wrapped.set(client, known);
      return known;
    },
    end: () => pool.end(),
  };
}
