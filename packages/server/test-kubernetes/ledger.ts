/** A client that writes numbers through an endpoint, and notes which are acknowledged. */
import type { Client } from 'pg';
import { during, until } from '../test/until.ts';

/** Runs work with a session at the endpoint. */
type WithClient = <T>(work: (client: Client) => Promise<T>) => Promise<T>;

export async function openLedger(withClient: WithClient) {
  await withClient((client) => client.query('create table ledger (number integer primary key)'));
  const acknowledged: number[] = [];
  let next = 0;
  let isEnding = false;
  const session = async (client: Client): Promise<void> => {
    let isWarned = false;
    // PostgreSQL warns that a commit which did not wait for a standby may be lost.
    client.on('notice', () => {
      isWarned = true;
    });
    while (!isEnding) {
      next += 1;
      isWarned = false;
      const number = next;
      await client.query('insert into ledger values ($1)', [number]);
      if (!isWarned) acknowledged.push(number);
    }
  };
  // After a session that ended, another one through the same endpoint.
  const writing = during(
    () => !isEnding,
    () => withClient(session).catch(() => undefined),
  );
  return {
    acknowledged,
    /** Waits until so many more writes are acknowledged. */
    goesOn: async (writes = 20): Promise<void> => {
      const wanted = acknowledged.length + writes;
      await until(`${writes} more writes are acknowledged`, () => acknowledged.length >= wanted);
    },
    /** Ends the client. @returns the numbers that were acknowledged and are lost */
    end: async (): Promise<number[]> => {
      isEnding = true;
      await writing;
      const kept = new Set(await numbersIn(withClient));
      return acknowledged.filter((number) => !kept.has(number));
    },
  };
}

/** The server may be just starting again. */
async function numbersIn(withClient: WithClient): Promise<number[]> {
  const { rows } = await until('the server answers', () =>
    withClient((client) => client.query<{ number: number }>('select number from ledger')),
  );
  return rows.map(({ number }) => number);
}
