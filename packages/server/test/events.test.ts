/**
 * The stream of events: complete, in order, resumable wherever it breaks, and closed with its key.
 */
import { messageOf } from '@howdah/contract/thrown';
import { followEvents } from '@howdah/client';
import { sql } from 'kysely';
import { Client, Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  allEvents,
  cloud,
  type Event,
  eventsUpToNow,
  insertKey,
  lastEvent,
  memoryMb,
  metadata,
  openAndStall,
  openStreams,
  readInPieces,
  rename,
  revoke,
  service,
  setUp,
  tearDown,
} from './events-cloud.ts';
import {
  createEventHub,
  newId,
  type OnNotification,
  prepareMachine,
  type Store,
  storeConnection,
} from './probe.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

test('the events of a service come in order, each step of each operation once', async () => {
  const after = await lastEvent();
  const life = await cloud.create({ name: 'a life', service_type: 'POSTGRES' });
  const id = life.service_id;
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await cloud.request('POST', `/services/${id}/start`);
  await cloud.until(id, 'READY');
  await cloud.request('DELETE', `/services/${id}`);
  await untilExpected('the service is deleted', async () =>
    expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404),
  );
  const events = (await eventsUpToNow(after)).filter(({ data }) => data.service_id === id);
  const statuses = events
    .filter(({ type }) => type === 'service.status')
    .map(({ data }) => [data['from'], data['status']]);
  expect(statuses).toEqual([
    [undefined, 'QUEUED'],
    ['QUEUED', 'CONFIGURING'],
    ['CONFIGURING', 'READY'],
    ['READY', 'PAUSING'],
    ['PAUSING', 'PAUSED'],
    ['PAUSED', 'RESUMING'],
    ['RESUMING', 'READY'],
    ['READY', 'DELETING'],
    ['DELETING', 'DELETED'],
  ]);
  for (const operation of await cloud.operations(id)) {
    const told = events.filter(
      ({ data }) => data.operation_id === operation.id && data['kind'] !== undefined,
    );
    expect(told.at(0)).toMatchObject({
      type: 'operation.started',
      data: { kind: operation.kind, requested_by: cloud.key.split(':')[0] },
    });
    expect(told.at(-1)).toMatchObject({
      type: 'operation.finished',
      data: { status: 'succeeded' },
    });
    const ended = told.flatMap(({ data: { step } }) => (isEnded(step) ? [step] : []));
    expect(ended, operation.kind).toEqual(operation.steps);
  }
  const times = events.map(({ timestamp }) => timestamp);
  expect(times).toEqual(times.toSorted());
});

function isEnded(step: unknown): boolean {
  return typeof step === 'object' && step !== null && 'finished' in step && step.finished !== null;
}

test('a status and its event are in one transaction: a rollback leaves no event', async () => {
  const before = await allEvents();
  await metadata.db
    .transaction()
    .execute(async (tx) => {
      await tx
        .updateTable('services')
        .set({ status: 'UNSTABLE' })
        .where('id', '=', service.service_id)
        .execute();
      throw new Error('rolled back');
    })
    .catch((error: unknown) => expect(String(error)).toContain('rolled back'));
  expect(await allEvents()).toEqual(before);
});

test('a reader of events never misses a lower number: numbers follow commits', async () => {
  const after = await lastEvent();
  const seen: string[] = [];
  const stop = new AbortController();
  const reading = (async () => {
    for await (const { data } of followEvents({ ...cloud, after, signal: stop.signal }))
      if (data['status'] === undefined) seen.push(String(data.service_id));
  })();
  const insert = (serviceId: string) =>
    sql`insert into operations (id, project_id, service_id, kind, status, requested_by)
        values (${newId()}, ${cloud.projectId}, ${serviceId}, 'verifyBackup', 'queued', 'howdah')`;
  const slow = await metadata.db.startTransaction().execute();
  await insert('began_first').execute(slow);
  await metadata.db
    .transaction()
    .execute(async (tx) => void (await insert('began_next').execute(tx)));
  await untilExpected('the reader has the event that was committed first', async () =>
    expect(seen).toEqual(['began_next']),
  );
  await slow.commit().execute();
  await untilExpected('the reader has the event that was committed later', async () =>
    expect(seen).toEqual(['began_next', 'began_first']),
  );
  stop.abort();
  await reading;
  await sql`delete from operations where service_id in ('began_first', 'began_next')`.execute(
    metadata.db,
  );
});

test('a reader gets no gap and no duplicate, over lost connections and kills', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  process.stdout.write(`events.test.ts: seed ${seed}\n`);
  const after = await lastEvent();
  let end: string | null = null;
  const readers = [1, 2, 3].map((n) => readInPieces(after, () => end, generator(seed + n)));
  // And one that nobody interrupts.
  const [whole, stop]: [string[], AbortController] = [[], new AbortController()];
  const following = (async () => {
    for await (const { id } of followEvents({ ...cloud, after, signal: stop.signal }))
      whole.push(id);
  })();
  let accepted = 0;
  for (let round = 0; round < 4; round++) {
    const renames = Array.from({ length: 40 }, async (_, n) => {
      const answer = await rename(`round ${round} ${n}`).catch(() => null);
      if (answer?.status === 200) accepted++;
    });
    if (round % 2 === 1) {
      await renames[5];
      await cloud.stop('SIGKILL');
      await Promise.all(renames);
      await cloud.up();
    }
    await Promise.all(renames);
  }
  end = await lastEvent();
  const expected = (await allEvents(after)).filter((id) => BigInt(id) <= BigInt(end ?? after));
  expect(accepted).toBeGreaterThan(80);
  // Each rename makes two events: it began, and it ended.
  expect(expected.length).toBeGreaterThanOrEqual(accepted * 2);
  // Events that happen meanwhile may be read or not.
  const last = BigInt(end);
  await until(
    'the uninterrupted reader has the last event',
    () => BigInt(whole.at(-1) ?? 0) >= last,
  );
  stop.abort();
  await following;
  for (const seen of [...(await Promise.all(readers)), whole])
    expect(
      seen.filter((id) => BigInt(id) <= last),
      `seed ${seed}`,
    ).toEqual(expected);
});

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

test('revoking a key ends its streams at once, and no others', async () => {
  const [mine, other] = [await insertKey(), cloud.key];
  const ended: string[] = [];
  const follow = async (key: string, name: string, stop: AbortSignal) => {
    try {
      for await (const event of followEvents({ ...cloud, key, signal: stop }))
        if (event.type === 'service.status') break;
    } catch (error) {
      ended.push(`${name}: ${messageOf(error)}`);
    }
  };
  const stop = new AbortController();
  const followers = [follow(mine, 'mine', stop.signal), follow(other, 'other', stop.signal)];
  await untilExpected('two streams are open', async () => expect(await openStreams()).toBe(2));
  await revoke(mine);
  await untilExpected('one stream is open', async () => expect(await openStreams()).toBe(1));
  // The reader comes back and is refused.
  await untilExpected('the reader with the revoked key is refused', async () =>
    expect(ended).toEqual([expect.stringContaining('mine: Authorization: no valid key')]),
  );
  expect(await openStreams()).toBe(1);
  stop.abort();
  await Promise.all(followers);
});

test('stalled readers hold no memory, and their key can be revoked', async () => {
  const [from] = await allEvents();
  await sql`
    insert into events (seq, project_id, at, type, doc)
    select nextval('event_seq'), ${cloud.projectId}, now(), 'service.warnings',
      json_build_object('data', repeat('x', 4000))::text
    from generate_series(1, 20000)`.execute(metadata.db);
  expect(from).toBeDefined();
  const key = await insertKey();
  // Any reader costs the control plane some memory.
  await eventsUpToNow('0');
  const before = await memoryMb();
  const stalled = Array.from({ length: 30 }, () => openAndStall(key));
  await untilExpected('30 streams are open', async () => expect(await openStreams()).toBe(30));
  // Another reader gets all of it twice meanwhile.
  for (let n = 0; n < 2; n++)
    expect((await eventsUpToNow('0')).length).toBeGreaterThanOrEqual(20_000);
  // 80 MB for each of them, if they were handed all that there is.
  expect((await memoryMb()) - before).toBeLessThan(150);
  await revoke(key);
  await untilExpected('no stream is open', async () => expect(await openStreams()).toBe(0));
  for (const socket of stalled) socket.destroy();
  await sql`delete from events where type = 'service.warnings'`.execute(metadata.db);
});

test("a second control plane sends the same events, and ends a revoked key's streams", async () => {
  const other = await openOther();
  try {
    await followBeside(other.store);
  } finally {
    await other.close();
  }
});

async function followBeside(store: Store): Promise<void> {
  const hub = createEventHub(store);
  const key = await insertKey();
  const after = await lastEvent();
  const told: string[] = [];
  const stream = hub.open({
    projectId: cloud.projectId,
    publicKey: key.split(':')[0] ?? '',
    after,
    follow: true,
  });
  const reading = (async () => {
    try {
      for await (const text of stream)
        told.push(...[...String(text).matchAll(/^id: (\d+)$/gm)].map(([, id]) => id ?? ''));
    } catch {
      // cut
    }
  })();
  for (let n = 0; n < 20; n++) await rename(`seen by another ${n}`);
  await untilExpected('the other control plane has sent all events', async () =>
    expect(told).toEqual(await allEvents(after)),
  );
  await revoke(key);
  await reading;
}

/** The basis of another control plane: connections of its own to the same metadata. */
async function openOther() {
  const connection = storeConnection(await prepareMachine(cloud.home));
  const pool = new Pool({ ...connection, max: 2, application_name: 'howdah test' });
  const session = new Client(connection);
  await session.connect();
  const listeners: [string, OnNotification][] = [];
  session.on('notification', ({ channel, payload }) => {
    for (const [wanted, listener] of listeners) if (wanted === channel) listener(payload ?? '');
  });
  for (const channel of ['howdah_event', 'howdah_key']) await session.query(`listen ${channel}`);
  const store: Store = {
    db: metadata.db,
    pool,
    listen: (channel, listener) => void listeners.push([channel, listener]),
    holdsLock: () => true,
    close: async () => undefined,
  };
  return {
    store,
    close: async () => {
      await session.end();
      await pool.end();
    },
  };
}

test('a stream begins with the next event or after a named one, not a too old one', async () => {
  const all = await allEvents();
  const middle = all.at(-5) ?? '';
  expect((await eventsUpToNow(middle)).map(({ id }) => id)).toEqual(await allEvents(middle));
  const url = `${cloud.apiUrl}/projects/${cloud.projectId}/events?follow=false`;
  const headers = { Authorization: `Bearer ${cloud.key}` };
  expect(await (await fetch(url, { headers })).text()).toBe('retry: 1000\n\n');
  const byQuery = await (await fetch(`${url}&last_event_id=${middle}`, { headers })).text();
  expect(byQuery.match(/^id: /gm)).toHaveLength(4);
  for (const bad of ['x', '-1', '1.5', '9'.repeat(40), "1' or '1"]) {
    const refused = await fetch(url, { headers: { ...headers, 'Last-Event-ID': bad } });
    expect([refused.status, await refused.text()]).toEqual([
      400,
      expect.stringContaining('Last-Event-ID: found'),
    ]);
  }
  expect((await fetch(url.replace(cloud.projectId, newId()), { headers })).status).toBe(403);
  expect((await fetch(url, { method: 'HEAD', headers })).status).toBe(405);
  await sql`insert into event_horizon values (${all[2] ?? '0'})`.execute(metadata.db);
  const late = await (await fetch(`${url}&last_event_id=${all[0]}`, { headers })).text();
  expect(late).toMatch(/^retry: 1000\n\nevent: gap\ndata: \{.*\}\n\n(id|$)/);
  const inTime = await (await fetch(`${url}&last_event_id=${all[2]}`, { headers })).text();
  expect(inTime).not.toContain('gap');
});

test('another project gets none of the events', async () => {
  const projectId = newId();
  await metadata.db.insertInto('projects').values({ id: projectId, name: 'other' }).execute();
  const key = await insertKey(projectId);
  const told: Event[] = [];
  for await (const event of followEvents({ ...cloud, projectId, key, after: '0', follow: false }))
    told.push(event);
  expect(told).toEqual([]);
  await expect(
    (async () => {
      for await (const event of followEvents({ ...cloud, key, follow: false })) told.push(event);
    })(),
  ).rejects.toThrow(/has no access to that project/);
});

test('a stop of the control plane ends streams cleanly, and the next one continues', async () => {
  const after = await lastEvent();
  const seen: string[] = [];
  const stop = new AbortController();
  const reading = (async () => {
    for await (const { id } of followEvents({ ...cloud, after, signal: stop.signal }))
      seen.push(id);
  })();
  const stream = fetch(`${cloud.apiUrl}/projects/${cloud.projectId}/events?follow=true`, {
    headers: { Authorization: `Bearer ${cloud.key}` },
  });
  await untilExpected('two streams are open', async () => expect(await openStreams()).toBe(2));
  await cloud.stop('SIGTERM');
  // A connection that is cut, as after the grace for requests, has no end of its body.
  expect(await (await stream).text()).toEqual(expect.any(String));
  await cloud.up();
  await rename('after a stop');
  await untilExpected('the reader has all events', async () => {
    expect(seen).not.toEqual([]);
    expect(seen).toEqual(await allEvents(after));
  });
  stop.abort();
  await reading;
});
