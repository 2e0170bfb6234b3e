/** Receivers that never end cost a request its answer, and nothing else. */
import { createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { blockListOf, post, mayReach } from './outgoing-request.ts';

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

const none = blockListOf([]);

test('an address that only this machine or its network can reach is refused', () => {
  const refused = [
    '127.0.0.1',
    '127.255.255.254',
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '::ffff:a00:1',
    '::ffff:169.254.169.254',
    '64:ff9b::7f00:1',
    '2002:7f00:1::',
    'fe80::1',
    'fd00::1',
    'ff02::1',
    // IPv4-compatible, IPv4-translated, NAT64, 6to4, Teredo and ISATAP, each with 127.0.0.1 or
    // 10.0.0.1 in it.
    '::127.0.0.1',
    '::7f00:1',
    '0:0:0:0:0:0:10.0.0.1',
    '::ffff:0:127.0.0.1',
    '::ffff:0:7f00:1',
    '::ffff:0:a00:1',
    '64:ff9b::10.0.0.1',
    '64:ff9b:1::7f00:1',
    '2002:a00:1::1',
    '2001:0:4136:e378:8000:63bf:80ff:fffe',
    '2001:db8::5efe:7f00:1',
    '2606:4700::5efe:7f00:1',
    '2606:4700::200:5efe:a00:1',
    // Neither local nor of the Internet.
    '100::1',
    '3fff::1',
    '4000::1',
    'fe80::1%lo',
    'fec0::1',
    'localhost',
    '',
  ];
  for (const address of refused) expect(mayReach(address, none), address).toBe(false);
  for (const address of [
    '8.8.8.8',
    '172.32.0.1',
    '100.128.0.1',
    '1.1.1.1',
    '2606:4700::1111',
    '::ffff:8.8.8.8',
  ])
    expect(mayReach(address, none), address).toBe(true);
});

test('a network that is configured can be reached, and no other', () => {
  const allowed = blockListOf(['127.0.0.1', 'fd00::/8']);
  expect(mayReach('127.0.0.1', allowed)).toBe(true);
  expect(mayReach('::ffff:127.0.0.1', allowed)).toBe(true);
  expect(mayReach('fd12::1', allowed)).toBe(true);
  expect(mayReach('127.0.0.2', allowed)).toBe(false);
  expect(mayReach('10.0.0.1', allowed)).toBe(false);
});
