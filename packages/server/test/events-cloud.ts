/** An installation with a service, and readers of its events. */
import { readFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { followEvents, type Schemas } from '@howdah/client';
import { BASE_PATH } from '@howdah/contract';
import { sql } from 'kysely';
import { expect } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { newId, sha256 } from './probe.ts';
import { until } from './until.ts';

export type Event = Schemas['Event'];

export let cloud: Installation;

export let metadata: Awaited<ReturnType<typeof openMetadata>>;

export let service: Service;

/** All events, as the metadata database has them. */
export async function allEvents(after = '0'): Promise<string[]> {
  const { rows } = await sql<{ seq: string }>`
    select seq from events where project_id = ${cloud.projectId} and seq > ${after}
      order by seq`.execute(metadata.db);
  return rows.map(({ seq }) => seq);
}

export async function lastEvent(): Promise<string> {
  return (await allEvents()).at(-1) ?? '0';
}

/** Reads until the end of what there is now. */
export async function eventsUpToNow(after: string): Promise<Event[]> {
  const found: Event[] = [];
  for await (const event of followEvents({ ...cloud, after, follow: false })) found.push(event);
  return found;
}

/** A key made by hand, as another control plane would have made it. */
export async function insertKey(projectId = cloud.projectId): Promise<string> {
  const [publicKey, secret] = [`HD${newId()}${newId()}`, newId()];
  await metadata.db
    .insertInto('api_keys')
    .values({
      public_key: publicKey,
      project_id: projectId,
      name: 'test',
      role: 'viewer',
      secret_hash: sha256(secret),
      expires_at: null,
      revoked_at: null,
      last_used: null,
    })
    .execute();
  return `${publicKey}:${secret}`;
}

export async function revoke(key: string): Promise<void> {
  await metadata.db
    .updateTable('api_keys')
    .set({ revoked_at: new Date() })
    .where('public_key', '=', key.split(':')[0] ?? '')
    .execute();
}

export const rename = (name: string) =>
  cloud.request('POST', `/services/${service.service_id}/rename`, { name });

/**
 * Reads until it has the event `end()`; null: not known yet. Its connection ends after some events
 * each time, and is opened again where it was.
 */
export async function readInPieces(
  after: string,
  end: () => string | null,
  random: () => number,
): Promise<string[]> {
  const seen: string[] = [];
  let place = after;
  const all = new AbortController();
  const read = until('the reader has the last event', () => {
    const last = end();
    return last !== null && BigInt(place) >= BigInt(last);
  });
  const ended = read.finally(() => all.abort());
  while (!all.signal.aborted) {
    const cut = new AbortController();
    const signal = AbortSignal.any([cut.signal, all.signal]);
    let left = 1 + Math.floor(random() * 7);
    try {
      for await (const event of followEvents({ ...cloud, after: place, signal })) {
        seen.push(event.id);
        place = event.id;
        if (--left === 0) break;
      }
    } catch (error) {
      // The control plane is being killed.
      if (!(error instanceof TypeError)) throw error;
      await until('the API answers', () => fetch(`http://127.0.0.1:${cloud.port}/healthz`));
    } finally {
      cut.abort();
    }
  }
  await ended;
  return seen;
}

/**
 * Connections to the API that have sent a request and are still answered: of this test, the
 * streams.
 */
export async function openStreams(): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  return Number(/^howdah_event_streams (\d+)$/m.exec(text)?.[1] ?? -1);
}

/** A stream that nobody reads from. */
export function openAndStall(key: string): Socket {
  const socket = new Socket();
  socket.on('error', () => undefined);
  socket.connect(cloud.port, '127.0.0.1');
  socket.write(
    `GET ${BASE_PATH}/projects/${cloud.projectId}/events HTTP/1.1\r\nHost: x\r\n` +
      `Authorization: Bearer ${key}\r\nLast-Event-ID: 0\r\n\r\n`,
  );
  socket.pause();
  return socket;
}

export async function memoryMb(): Promise<number> {
  const status = await readFile(`/proc/${cloud.planePid()}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}

export async function setUp(): Promise<void> {
  cloud = await install({ HOWDAH_RESTORE_HOURS: '0' });
  metadata = await openMetadata(cloud.home);
  service = await cloud.create({ name: 'told of', service_type: 'POSTGRES' });
}

export async function tearDown(): Promise<void> {
  await metadata.close();
  expect(await cloud.destroy()).toEqual([]);
}
