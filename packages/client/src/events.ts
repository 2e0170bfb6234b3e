/** Follows a project's events: reads the stream, and connects again where it was when it breaks. */
import { createParser } from 'eventsource-parser';
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
      // Errors of the network are repaired by a new connection; answers of the server are not.
      if (!(error instanceof TypeError) || !heard || !follow) throw error;
    }
    await pause(RETRY_MS, signal);
  }
}

/**
 * The events of one connection. Comments, and events without an id, show only that the stream is
 * open: null.
 */
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
  // Node's fetch gets the signal from the request, which may be garbage collected while its answer
  // goes on.
  signal?.addEventListener('abort', leave);
  if (signal?.aborted === true) leave();
  const decoder = new TextDecoder();
  const arrived: (Event | null)[] = [];
  const parser = createParser({
    onEvent: ({ id, data }) => arrived.push(id === undefined ? null : parseEvent(data)),
    onComment: () => arrived.push(null),
    onRetry: () => arrived.push(null),
  });
  try {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      parser.feed(decoder.decode(chunk.value, { stream: true }));
      yield* arrived.splice(0);
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

function parseEvent(data: string): Event {
  const event: Event = JSON.parse(data);
  return event;
}
