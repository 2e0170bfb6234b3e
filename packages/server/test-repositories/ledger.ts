/** A client that writes all the while, and notes which commits were acknowledged, and when. */
import type { Client } from 'pg';
import { connectTo, type Installation } from '../test/harness.ts';
import type { ServiceAccess } from '../test/repository-cloud.ts';
import { during, until } from '../test/until.ts';

export type Ledger = Awaited<ReturnType<typeof openLedger>>;

export async function openLedger(cloud: Installation, service: ServiceAccess) {
  const client: Client = await connectTo(cloud, service, service.initial_password);
  await client.query('create table ledger (n int primary key)');
  const acknowledged: { n: number; atMs: number }[] = [];
  let isOpen = true;
  const write = async (): Promise<void> => {
    const n = acknowledged.length + 1;
    await client.query('insert into ledger values ($1)', [n]);
    acknowledged.push({ n, atMs: Date.now() });
  };
  // The loss of the machine ends it.
  const ended = during(() => isOpen, write)
    .then(() => client.end())
    .catch(() => undefined);
  return {
    acknowledged,
    /** Waits until a write was acknowledged that began after now. */
    goesOn: async (): Promise<void> => {
      const beginsAfter = acknowledged.length + 1;
      await until('a later write is acknowledged', () => acknowledged.length > beginsAfter);
    },
    /** A moment between two of its commits. @returns n: the last one before it */
    moment: async (): Promise<{ at: string; n: number }> => {
      const { rows } = await client.query<{ at: string; n: number }>(
        `select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
           as at, max(n) as n from ledger`,
      );
      const [found] = rows;
      if (found === undefined) throw new Error('an aggregate has a row');
      return found;
    },
    stop: async (): Promise<void> => {
      isOpen = false;
      await ended;
    },
  };
}
