/** Receivers that never end cost a request its answer, and nothing else. */
import { createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { blockListOf } from './networks.ts';
import { post } from './outgoing.ts';

const allowed = blockListOf(['127.0.0.1']);

/**
 * A receiver that sends without end once a request has arrived.
 *
 * @param more what follows the start, again and again
 * @returns the bytes that it could send until its connection was closed
 */
async function flood(start: string, more: string) {
  const chunk = Buffer.from(more.repeat(Math.ceil(65_536 / more.length)));
  const server = createServer();
  const sent = new Promise<number>((settle) => {
    server.on('connection', (socket) => {
      const send = (): void => {
        while (!socket.destroyed && socket.write(chunk));
      };
      socket.on('error', () => undefined);
      socket.on('close', () => settle(socket.bytesWritten));
      socket.on('drain', send);
      socket.once('data', () => {
        socket.write(start);
        send();
      });
      onTestFinished(() => void socket.destroy());
    });
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', () => listening()));
  onTestFinished(() => void server.close());
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return { url: `http://127.0.0.1:${port}/`, sent };
}

test.each([
  ['body', 'HTTP/1.1 200 OK\r\n\r\n', 'x', { responseStatus: 200, error: null }],
  [
    'body of a redirect',
    'HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/\r\n\r\n',
    'x',
    { responseStatus: 307, error: expect.stringContaining('redirect') },
  ],
  [
    'header',
    'HTTP/1.1 200 OK\r\n',
    'X-Header: value\r\n',
    { responseStatus: null, error: expect.stringContaining('Header overflow') },
  ],
  [
    'row of interim responses',
    '',
    'HTTP/1.1 103 Early Hints\r\n\r\n',
    { responseStatus: null, error: expect.stringContaining('interim responses') },
  ],
])('a %s without end is not read', async (_, start, more, outcome) => {
  const { url, sent } = await flood(start, more);
  expect(await post(url, {}, '{}', allowed)).toEqual(outcome);
  // The buffers of both sockets hold less: the connection was closed.
  expect(await sent).toBeLessThan(32 * 1024 * 1024);
});
