/**
 * Reads that many requests make at the same time: the ids asked for in one turn of the event loop
 * go to the database as one prepared statement. Never stale, since nothing is cached, and 3.7 times
 * the rate of one statement for each request (docs/performance.md, section 5).
 */
import DataLoader from 'dataloader';
import type { Pool, QueryResultRow } from 'pg';

/**
 * Batches that are under way at the same time. More would be smaller and compete for the cores:
 * with 8, p99 is twice as long; with 1, the rate is lower.
 */
const BATCHES = 2;

/**
 * @param name of the prepared statement
 * @param text with `$1` as a text array of keys; each row has its key as `key`
 * @returns a function from a key to its row; null where there is none
 */
export function coalesced<Row extends QueryResultRow & { key: string }>(
  pool: Pool,
  name: string,
  text: string,
): (key: string) => Promise<Row | null> {
  let waiting: (() => void) | null = null;
  let underWay = 0;

  /** Begins the batch that waits. It keeps growing while as many as allowed are under way. */
  const begin = (): void => {
    if (waiting === null || underWay === BATCHES) return;
    const send = waiting;
    waiting = null;
    underWay++;
    send();
  };

  const readAll = async (keys: readonly string[]): Promise<(Row | null)[]> => {
    try {
      const { rows } = await pool.query<Row>({ name, text, values: [[...new Set(keys)]] });
      const found = new Map(rows.map((row) => [row.key, row]));
      return keys.map((key) => found.get(key) ?? null);
    } finally {
      underWay--;
      begin();
    }
  };

  const loader = new DataLoader(readAll, {
    cache: false,
    batchScheduleFn: (send) => {
      waiting = send;
      setImmediate(begin);
    },
  });
  return (key) => loader.load(key);
}
