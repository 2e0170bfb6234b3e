import { expect, test } from 'vitest';
import { followEvents } from './events.ts';

test('a stream ends at the signal, even where fetch no longer reacts to it', async () => {
  const stop = new AbortController();
  const body = new ReadableStream({
    start: (stream) =>
      stream.enqueue(
        new TextEncoder().encode('id: 1\nevent: service.status\ndata: {"id":"1"}\n\n'),
      ),
  });
  const seen: string[] = [];
  const following = (async () => {
    const options = {
      apiUrl: 'http://howdah',
      projectId: 'p',
      signal: stop.signal,
      fetch: async () => new Response(body),
    };
    for await (const { id } of followEvents(options)) seen.push(id);
  })();
  await expect.poll(() => seen).toEqual(['1']);
  stop.abort();
  await following;
});

/** The events that a client gets when the server sends these chunks. */
async function eventsOf(chunks: readonly string[]): Promise<unknown[]> {
  const body = new ReadableStream({
    start: (stream) => {
      for (const chunk of chunks) stream.enqueue(new TextEncoder().encode(chunk));
      stream.close();
    },
  });
  const fetch = async () => new Response(body);
  const seen: unknown[] = [];
  const options = { apiUrl: 'http://howdah', projectId: 'p', follow: false, fetch };
  for await (const event of followEvents(options)) seen.push(event);
  return seen;
}

test('an event is read in whatever chunks and with whatever line ends it arrives', async () => {
  const sent =
    'retry: 1000\n\n: still here\n\nid: 7\nevent: x\ndata: {"id":"7",\ndata: "type":"x"}\n\n';
  for (const text of [sent, sent.replaceAll('\n', '\r\n')]) {
    expect(await eventsOf([text])).toEqual([{ id: '7', type: 'x' }]);
    expect(await eventsOf([...text])).toEqual([{ id: '7', type: 'x' }]);
  }
});

test('an event without an id, such as a gap, is not one of the project', async () => {
  expect(await eventsOf(['event: gap\ndata: {"type":"gap"}\n\n'])).toEqual([]);
});
