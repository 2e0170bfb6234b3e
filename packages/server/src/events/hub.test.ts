import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type CompiledQuery,
} from 'kysely';
import { expect, test } from 'vitest';
import type { Store } from '../store/database.ts';
import type { Channel, OnNotification, EventRow } from '../store/events.ts';
import type { Tables } from '../store/tables.ts';
import { createEventHub } from './hub.ts';

/**
 * A metadata database that answers a read of events on command, with the events of the moment when
 * it was asked.
 */
function slowMetadata() {
  const events: EventRow[] = [];
  const asked: (() => void)[] = [];
  const listeners = new Map<Channel, OnNotification>();
  const answer = async (query: CompiledQuery): Promise<unknown[]> => {
    if (!query.sql.includes('select seq, type, doc')) return [{ last: '0', pruned: '0' }];
    const rows = events
      .filter(({ seq }) => BigInt(seq) > BigInt(String(query.parameters[1])))
      .map((row) => ({ ...row, flushed: true }));
    await new Promise<void>((resolve) => void asked.push(resolve));
    return rows;
  };
  class Driver extends DummyDriver {
    override async acquireConnection() {
      return {
        executeQuery: async (query: CompiledQuery) => ({
          rows: JSON.parse(JSON.stringify(await answer(query))),
        }),
        streamQuery: () => {
          throw new Error('nothing is streamed');
        },
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
  const store: Pick<Store, 'db' | 'listen'> = {
    db,
    listen: (channel, listener) => void listeners.set(channel, listener),
  };
  const happen = (event: EventRow): void => {
    events.push(event);
    listeners.get('howdah_event')?.('p');
  };
  return { store, asked, happen };
}

test('who is told of an event does not share a read that began before it', async () => {
  const { store, asked, happen } = slowMetadata();
  const hub = createEventHub(store);
  const seen: string[] = [];
  const open = (name: string): void => {
    const stream = hub.open({ projectId: 'p', publicKey: 'k', after: '0', follow: true });
    stream.on('data', (frame) => String(frame).startsWith('id: 1') && seen.push(name));
  };
  open('waits');
  await expect.poll(() => asked.length).toBe(1);
  asked.shift()?.();
  open('reads');
  await expect.poll(() => asked.length).toBe(1);
  happen({ seq: '1', type: 'service.status', doc: '{}' });
  await expect
    .poll(() => {
      for (const answer of asked.splice(0)) answer();
      return seen.toSorted();
    })
    .toEqual(['reads', 'waits']);
  hub.close();
});
