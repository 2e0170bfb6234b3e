/**
 * Follows a project's events: reads the stream, and comes back to it where it was when it breaks.
 */
import type { components } from './generated/api.ts';
import type { ClientOptions } from './client.ts';
import { errorOf } from './errors.ts';

type Event = components['schemas']['Event'];

export type FollowOptions = ClientOptions & {
  projectId: string;
  /**
   * Begin after the event with this id; "0": with the oldest that is kept;
   * absent: with the next one.
   */
  after?: string;
  /** Whether to wait for more at the end; default: true. */
  follow?: boolean;
  signal?: AbortSignal;
};

const RETRY_MS = 1000;

/**
 * Each event once and in order, over as many connections as it takes.
 *
 * @throws HowdahError when the stream is refused, TypeError when nobody answers the first time
 */
export async function* followEvents(options: FollowOptions): AsyncGenerator<Event> {
  const { follow = true, signal } = options;
  const wanted = (): boolean => signal?.aborted !== true;
  let after = options.after;
  let heard = false;
  while (wanted()) {
    try {
      for await (const event of readStream(options, after)) {
        heard = true;
        if (event === null) continue;
        after = event.id;
        yield event;
      }
      if (!follow || !wanted()) return;
    } catch (error) {
      if (!wanted()) return;
      // A fault of the network is repaired by a new request; an error of the server is not.
      if (!(error instanceof TypeError) || !heard || !follow) throw error;
    }
    await pause(RETRY_MS, signal);
  }
}

/** The events of one connection; null for what is none, and says only that the stream lives. */
async function* readStream(options: FollowOptions, after?: string): AsyncGenerator<Event | null> {
  const { apiUrl, key, projectId, follow = true, signal, fetch: ask = fetch } = options;
  const request = new Request(`${apiUrl}/projects/${projectId}/events?follow=${follow}`, {
    headers: {
      ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }),
      ...(after === undefined ? {} : { 'Last-Event-ID': after }),
    },
    ...(signal === undefined ? {} : { signal }),
  });
  const response = await ask(request);
  if (!response.ok || response.body === null) throw await errorOf(response);
  const reader = response.body.getReader();
  const leave = (): void => void reader.cancel().catch(() => undefined);
  // Node's fetch hears the signal by way of the request, which may be collected as garbage while
  // its answer goes on.
  signal?.addEventListener('abort', leave);
  if (signal?.aborted === true) leave();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      const blocks = (rest + decoder.decode(chunk.value, { stream: true })).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) yield parseBlock(block);
    }
  } finally {
    signal?.removeEventListener('abort', leave);
    // The caller ends the stream when it has read enough.
    await reader.cancel().catch(() => undefined);
  }
}

/** Waits, but not longer than until the signal. */
async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/**
 * An event of the wire, in its lines; null when it has no id, as the ones about the stream itself.
 */
function parseBlock(block: string): Event | null {
  const fields = new Map(
    block
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]),
  );
  const data = fields.get('data');
  if (!fields.has('id') || data === undefined) return null;
  const event: Event = JSON.parse(data);
  return event;
}
