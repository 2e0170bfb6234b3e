/** A client that writes all the while, and notes which commits were acknowledged, and when. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { connectTo, type Installation } from '../test/harness.ts';
import type { ServiceAccess } from '../test/repository-cloud.ts';

export type Ledger = Awaited<ReturnType<typeof openLedger>>;

export async function openLedger(cloud: Installation, service: ServiceAccess) {
  const client: Client = await connectTo(cloud, service, service.initial_password);
  await client.query('create table ledger (n int primary key)');
  const acknowledged: { n: number; atMs: number }[] = [];
  let isOpen = true;
  const write = async (): Promise<void> => {
    for (let n = 1; isOpen; n++) {
      await client.query('insert into ledger values ($1)', [n]);
      acknowledged.push({ n, atMs: Date.now() });
      await sleep(20);
    }
    await client.end();
  };
  // The loss of the machine ends it.
  const ended = write().catch(() => undefined);
  return {
    acknowledged,
    /** Waits until a write was acknowledged that began after now. */
    goesOn: async (): Promise<void> => {
      const beginsAfter = acknowledged.length + 1;
      while (acknowledged.length <= beginsAfter) await sleep(20);
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
