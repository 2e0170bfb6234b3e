/** Client hellos of OpenSSL, whole and in pieces, and everything that is none. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { connect } from 'node:tls';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { MAX_HELLO_BYTES, MAX_RECORDS, readClientHello } from './client-hello.ts';

const NAME = 'abcdefghij.db.example.com';

/** The first bytes of a client of Node's OpenSSL. */
async function helloOf(servername: string, more: object = {}): Promise<Buffer> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
  const client = connect({ port, host: '127.0.0.1', servername, ...more });
  client.on('error', () => undefined);
  const socket = await accepted;
  const bytes = await new Promise<Buffer>((resolve) => socket.once('data', resolve));
  client.destroy();
  socket.destroy();
  server.close();
  return bytes;
}

/** The same message in records of this many bytes. */
function inRecords(hello: Buffer, length: number): Buffer {
  const message = hello.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += length) {
    const part = message.subarray(at, at + length);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

test('a client hello is complete at its last byte, and not before', async () => {
  const hello = await helloOf(NAME.toUpperCase());
  for (let length = 0; length < hello.length; length += 1)
    expect(readClientHello(hello.subarray(0, length))).toEqual({ kind: 'more' });
  expect(readClientHello(hello)).toEqual({ kind: 'hello', name: NAME });
  const followed = Buffer.concat([hello, Buffer.from('GET /')]);
  expect(readClientHello(followed)).toEqual({ kind: 'hello', name: NAME });
});

test('a client hello may be split over records', async () => {
  const hello = await helloOf(NAME, { ALPNProtocols: ['postgresql'], maxVersion: 'TLSv1.2' });
  const message = hello.length - 5;
  const least = Math.ceil(message / MAX_RECORDS);
  for (const length of [least, least + 1, 50, 100, hello.length]) {
    const records = inRecords(hello, length);
    expect(readClientHello(records)).toEqual({ kind: 'hello', name: NAME });
    expect(readClientHello(records.subarray(0, -1))).toEqual({ kind: 'more' });
  }
  const short = inRecords(hello.subarray(0, 5 + MAX_RECORDS), 1);
  expect(readClientHello(short)).toEqual({ kind: 'more' });
  const shorter = inRecords(hello.subarray(0, 5 + MAX_RECORDS + 1), 1);
  expect(readClientHello(shorter)).toEqual({ kind: 'refused', why: 'too_long' });
});

test('a client hello without a name has none', async () => {
  expect(readClientHello(await helloOf(''))).toEqual({ kind: 'hello', name: null });
});

test.each([
  ['text', Buffer.from('GET / HTTP/1.1')],
  ['another record', Buffer.from([23, 3, 3, 0, 1])],
  ['another version', Buffer.from([22, 2])],
  ['an empty record', Buffer.from([22, 3, 1, 0, 0])],
  ['a record that is too long', Buffer.from([22, 3, 1, 0x40, 1])],
  ['another message', Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0])],
  ['an empty client hello', Buffer.from([22, 3, 1, 0, 4, 1, 0, 0, 0])],
])('%s is no client hello', (_what, bytes) => {
  expect(readClientHello(bytes)).toEqual({ kind: 'refused', why: 'not_tls' });
});

test('a client hello that is too long is refused as soon as that is known', () => {
  const announced = Buffer.from([22, 3, 1, 0, 4, 1, 1, 0, 0]);
  expect(readClientHello(announced)).toEqual({ kind: 'refused', why: 'too_long' });
  const message = Buffer.alloc(MAX_HELLO_BYTES);
  message.set([1, 0, 0x3f, 0xf0]);
  const slow = inRecords(Buffer.concat([Buffer.alloc(5), message]), 1024);
  expect(readClientHello(slow.subarray(0, MAX_HELLO_BYTES))).toEqual({
    kind: 'refused',
    why: 'too_long',
  });
});

test('any bytes have an answer, and any change of a client hello', async () => {
  const hello = await helloOf(NAME);
  const kinds = ['more', 'refused', 'hello'];
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => {
      const tail = Buffer.from(bytes);
      expect(kinds).toContain(readClientHello(tail).kind);
      expect(kinds).toContain(readClientHello(Buffer.concat([hello.subarray(0, 9), tail])).kind);
    }),
  );
  fc.assert(
    fc.property(fc.nat(hello.length - 1), fc.nat(255), (at, value) => {
      const changed = Buffer.from(hello);
      changed[at] = value;
      expect(kinds).toContain(readClientHello(changed).kind);
    }),
    { numRuns: 1000 },
  );
});
