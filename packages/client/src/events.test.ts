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
