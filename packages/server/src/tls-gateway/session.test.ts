/** Each deadline of a client, and the places that it has, before servers that do not answer. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { createPlaces } from './limits.ts';
import type { Route } from './routes.ts';
import {
  serveClient,
  type Refusal,
  type Timeouts,
  leaveAfter,
  MAX_READS,
  readHandshake,
} from './session.ts';
import { pass } from '../lib/sockets.ts';
import { sslRequest, tlsAlert } from '../lib/client-start.ts';

/** No test takes as long. */
const NEVER_MS = 600_000;
const SHORT_MS = 20;
const NEVER: Timeouts = {
  handshakeMs: NEVER_MS,
  lookupMs: NEVER_MS,
  connectMs: NEVER_MS,
  endMs: NEVER_MS,
};

const ends: (() => void)[] = [];
afterEach(() => ends.splice(0).forEach((end) => end()));

async function listen(accept: (socket: Socket) => void): Promise<number> {
  const sockets: Socket[] = [];
  const server = createServer({ pauseOnConnect: true }, (socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    accept(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ends.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const address = server.address();
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

type Given = Readonly<{
  timeouts?: Partial<Timeouts>;
  /** The port of the server. */
  port?: number;
  find?: () => Promise<Route | null>;
}>;

const ROUTE: Route = { address: '127.0.0.1', project: 'a', service: '1' };

/** A client of a gateway. */
async function clientOf({ timeouts = {}, port = 0, find = async () => ROUTE }: Given) {
  const places = createPlaces({ sessions: 8, handshakes: 8 });
  const refused: Refusal[] = [];
  let connected = (): void => undefined;
  const isConnected = new Promise<void>((resolve) => {
    connected = resolve;
  });
  const at = await listen((socket) => {
    socket.resume().pause();
    void serveClient(socket, {
      places,
      routes: { find },
      timeouts: { ...NEVER, ...timeouts },
      port,
      refused: (why) => refused.push(why),
      connected,
    });
  });
  const client = connect({ host: '127.0.0.1', port: at });
  ends.push(() => client.destroy());
  client.on('error', () => undefined);
  await once(client, 'connect');
  const chunks: Buffer[] = [];
  client.on('data', (chunk) => chunks.push(chunk));
  const closed = new Promise<Buffer>((resolve) =>
    client.once('close', () => resolve(Buffer.concat(chunks))),
  );
  return { client, closed, places, refused, isConnected };
}

/** A client hello with a name: one record, without a cipher suite. */
function hello(): Buffer {
  const name = Buffer.from('abcdefghij.db.example.com');
  const sized = (head: 1 | 2 | 3, bytes: Buffer): Buffer => {
    const length = Buffer.alloc(head);
    length.writeUIntBE(bytes.length, 0, head);
    return Buffer.concat([length, bytes]);
  };
  const names = sized(2, Buffer.concat([Buffer.from([0]), sized(2, name)]));
  const extensions = sized(2, Buffer.concat([Buffer.from([0, 0]), sized(2, names)]));
  const body = Buffer.concat([Buffer.alloc(34), Buffer.from([0, 0, 0, 0]), extensions]);
  const message = Buffer.concat([Buffer.from([1]), sized(3, body)]);
  return Buffer.concat([Buffer.from([22, 3, 1]), sized(2, message)]);
}

/** The answers to a client that is refused with an alert, after its request for TLS. */
const refusal = (alert: Parameters<typeof tlsAlert>[0]): Buffer =>
  Buffer.concat([Buffer.from('S'), tlsAlert(alert)]);

test('a client that says nothing is closed', async () => {
  const { closed, refused, places } = await clientOf({ timeouts: { handshakeMs: SHORT_MS } });
  expect(await closed).toHaveLength(0);
  expect(refused).toEqual(['slow']);
  await expect.poll(() => places.count()).toEqual({ sessions: 0, handshakes: 0 });
});

test('a DNS that does not answer is waited for so long', async () => {
  const find = (): Promise<null> => new Promise(() => undefined);
  const { client, closed, refused } = await clientOf({ timeouts: { lookupMs: SHORT_MS }, find });
  client.write(Buffer.concat([sslRequest(), hello()]));
  expect(await closed).toEqual(refusal('access_denied'));
  expect(refused).toEqual(['no_dns']);
});

test('a server that accepts and does not answer is waited for so long', async () => {
  const port = await listen(() => undefined);
  const { client, closed, refused, places } = await clientOf({
    timeouts: { connectMs: SHORT_MS },
    port,
  });
  client.write(Buffer.concat([sslRequest(), hello()]));
  expect(await closed).toEqual(refusal('access_denied'));
  expect(refused).toEqual(['no_answer']);
  await expect.poll(() => places.count()).toEqual({ sessions: 0, handshakes: 0 });
});

test.each(['N', 'E', 'SS'])('a server that answers %s is not connected', async (answer) => {
  const port = await listen((server) => void server.write(answer));
  const { client, closed, refused } = await clientOf({ port });
  client.write(Buffer.concat([sslRequest(), hello()]));
  expect(await closed).toEqual(refusal('access_denied'));
  expect(refused).toEqual(['no_answer']);
});

test('a port at which nobody listens has an alert of its own', async () => {
  const port = await listen(() => undefined);
  ends.splice(0).forEach((end) => end());
  const { client, closed, refused } = await clientOf({ port });
  client.write(Buffer.concat([sslRequest(), hello()]));
  expect(await closed).toEqual(refusal('internal_error'));
  expect(refused).toEqual(['unreachable']);
});

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

test('a client that sends its bytes one by one is refused soon', async () => {
  const client = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  const begun = readHandshake(client, new AbortController().signal);
  let isOver = false;
  void begun.finally(() => {
    isOver = true;
  });
  let sent = 0;
  for (; !isOver && sent < 10 * MAX_READS; sent += 1) {
    client.push(Buffer.from([[22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xf0][sent] ?? 0]));
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(isOver).toBe(true);
  expect(await begun).toEqual({ kind: 'refused', why: 'slow' });
  expect(sent).toBeLessThanOrEqual(MAX_READS + 1);
});
