/** Sessions of which one side has ended and the other one takes nothing. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { leaveAfter, pass } from './pass.ts';

const sockets: Socket[] = [];
afterEach(() => sockets.splice(0).forEach((socket) => socket.destroy()));

/** Both ends of a connection. */
async function connected(): Promise<readonly [Socket, Socket]> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
  const one = connect(typeof address === 'object' ? (address?.port ?? 0) : 0, '127.0.0.1');
  const other = await accepted;
  server.close();
  sockets.push(one, other);
  for (const socket of [one, other]) socket.on('error', () => undefined);
  return [one, other];
}

/** Less than makes a side wait for the other one. */
const CHUNK = Buffer.alloc(8192);

const round = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A session whose client has ended, with bytes that its server does not read. */
async function endedSession(endMs: number) {
  const [theirClient, client] = await connected();
  const [server, theirServer] = await connected();
  let left = 0;
  pass(client, server, endMs);
  leaveAfter([client, server], () => void (left += 1));
  while (server.writableLength === 0) {
    const wanted = client.bytesRead + CHUNK.length;
    theirClient.write(CHUNK);
    while (client.bytesRead < wanted) await round();
  }
  const isClosed = once(client, 'close');
  theirClient.destroy();
  await isClosed;
  return { server, theirServer, left: () => left };
}

test('a session leaves its place when both sides are closed, once', async () => {
  const { server, theirServer, left } = await endedSession(600_000);
  for (let count = 0; count < 100; count += 1) await round();
  expect(server.closed).toBe(false);
  expect(left()).toBe(0);
  theirServer.resume();
  if (!server.closed) await once(server, 'close');
  await round();
  expect(left()).toBe(1);
});

test('a side that takes nothing is closed some time after the other one', async () => {
  const { server, left } = await endedSession(20);
  if (!server.closed) await once(server, 'close');
  await round();
  expect(left()).toBe(1);
});
