import { once } from 'node:events';
import { connect as connectTcp, createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { sslRequest } from '../../../lib/client-start.ts';
import {
  createIssuer,
  makeAuthority,
  type CertificateAuthority,
  type CertificateIssuer,
} from '../../../lib/tls.ts';
import { createMovedNotices, createRate } from './moved-notices.ts';

const ADDRESS = '127.0.0.1';
/** A start of protocol 3.0, as libpq sends it. */
const START = Buffer.from('\0\0\0\x17\0\x03\0\0user\0tsdbadmin\0\0', 'latin1');
const GSS_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30]);
const ANSWER =
  /^E.*SFATAL\0.*C57P03\0Mthis service has moved to another region: connect to b:2\0H/s;

let authority: CertificateAuthority;
let issuer: CertificateIssuer;
let notices: ReturnType<typeof createMovedNotices>;
beforeAll(async () => {
  authority = await makeAuthority();
  issuer = createIssuer(authority, ['localhost', ADDRESS]);
});
afterEach(() => notices.close('id'));

async function listenAnywhere(): Promise<{ server: Server; port: number }> {
  const server = createServer().listen(0, ADDRESS);
  await once(server, 'listening');
  const address = server.address();
  return { server, port: typeof address === 'object' ? (address?.port ?? 0) : 0 };
}

async function freePort(): Promise<number> {
  const { server, port } = await listenAnywhere();
  server.close();
  await once(server, 'close');
  return port;
}

async function opened(host = 'b'): Promise<number> {
  const port = await freePort();
  notices = createMovedNotices(issuer, ADDRESS);
  await notices.open('id', port, { host, port: 2 });
  return port;
}

async function connected(port: number): Promise<Socket> {
  const socket = connectTcp(port, ADDRESS);
  await once(socket, 'connect');
  return socket;
}

async function rest(client: Duplex): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of client) chunks.push(chunk);
  return Buffer.concat(chunks).toString('latin1');
}

/** A client that begins TLS as its own begin says, and the answer. */
async function answerByTls(socket: Socket): Promise<string> {
  const tls = connectTls({
    socket,
    ca: authority.certificatePem,
    servername: 'localhost',
    ALPNProtocols: ['postgresql'],
  });
  await once(tls, 'secureConnect');
  expect(tls.alpnProtocol).toBe('postgresql');
  tls.write(START);
  return rest(tls);
}

test('a client learns by TLS where the service is, with our certificate', async () => {
  const socket = await connected(await opened());
  socket.write(sslRequest());
  const [answer] = await once(socket, 'data');
  expect(String(answer)).toBe('S');
  expect(await answerByTls(socket)).toMatch(ANSWER);
});

test('so is one that begins with TLS, and one without', async () => {
  const port = await opened();
  expect(await answerByTls(await connected(port))).toMatch(ANSWER);
  const plain = await connected(port);
  plain.write(GSS_REQUEST);
  const [answer] = await once(plain, 'data');
  expect(String(answer)).toBe('N');
  // In parts.
  plain.write(START.subarray(0, 5));
  plain.write(START.subarray(5));
  expect(await rest(plain)).toMatch(ANSWER);
});

test('an address of IPv6 is written as in connection strings', async () => {
  const plain = await connected(await opened('fd00::1'));
  plain.write(START);
  expect(await rest(plain)).toContain('connect to [fd00::1]:2\0');
});

test.each([
  ['another protocol', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
  [
    'a request to cancel',
    Buffer.from([0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2]),
  ],
])('%s gets no answer', async (_what, bytes) => {
  const socket = await connected(await opened());
  socket.write(bytes);
  expect(await rest(socket).catch(() => '')).toBe('');
});

test('requests without an end are no way to stay', async () => {
  const socket = await connected(await opened());
  let answers = 0;
  socket.on('data', (chunk) => (answers += chunk.length)).on('error', () => undefined);
  socket.write(Buffer.concat(Array.from({ length: 20 }, () => GSS_REQUEST)));
  await once(socket, 'close');
  expect(answers).toBeLessThan(20);
});

test('another endpoint is in the answers from then on, until the notice is closed', async () => {
  const port = await opened();
  await notices.open('id', port, { host: 'c', port: 3 });
  const plain = await connected(port);
  plain.write(START);
  expect(await rest(plain)).toContain('connect to c:3\0');
  notices.close('id');
  await expect(connected(port)).rejects.toThrow('ECONNREFUSED');
  await notices.open('id', port, { host: 'b', port: 2 });
});

test('a port that is taken is no notice', async () => {
  const { server: taken, port } = await listenAnywhere();
  notices = createMovedNotices(issuer, ADDRESS);
  const open = () => notices.open('id', port, { host: 'b', port: 2 });
  await expect(open()).rejects.toThrow('EADDRINUSE');
  taken.close();
  await once(taken, 'close');
  await open();
  const plain = await connected(port);
  plain.write(START);
  expect(await rest(plain)).toMatch(ANSWER);
});

test('only some enter in a second', () => {
  let nowMs = 1000;
  const mayEnter = createRate(2, () => nowMs);
  expect([mayEnter(), mayEnter(), mayEnter()]).toEqual([true, true, false]);
  nowMs = 2000;
  expect(mayEnter()).toBe(true);
});
