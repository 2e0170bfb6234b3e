import Fastify from 'fastify';
import { gunzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { acceptsGzip, COMPRESSED_FROM_BYTES, compressLongAnswers } from './compression.ts';

test.for([
  ['gzip', true],
  ['gzip, deflate, br, zstd', true],
  ['br, GZIP;q=0.5', true],
  ['*', true],
  ['', false],
  ['br', false],
  ['gzip;q=0', false],
  ['gzip;q=0, *', false],
  ['gzip;q=nonsense', false],
] as const)('Accept-Encoding: %s', ([header, expected]) => {
  expect(acceptsGzip(header)).toBe(expected);
});

test('a long answer is compressed for a client that asks, with the same content', async () => {
  const app = Fastify();
  compressLongAnswers(app);
  const rows = (letters: number) => [{ text: 'ä'.repeat(letters) }];
  app.get('/long', async () => rows(COMPRESSED_FROM_BYTES));
  app.get('/short', async () => rows(3));
  app.get('/bytes', async (_request, reply) => reply.send(Buffer.alloc(2 * COMPRESSED_FROM_BYTES)));
  const headers = { 'accept-encoding': 'gzip' };

  const long = await app.inject({ url: '/long', headers });
  expect(long.headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'Accept-Encoding' });
  expect(long.rawPayload.length).toBeLessThan(COMPRESSED_FROM_BYTES / 10);
  expect(JSON.parse(gunzipSync(long.rawPayload).toString())).toEqual(rows(COMPRESSED_FROM_BYTES));

  const plain = await app.inject({ url: '/long' });
  expect(plain.headers['content-encoding']).toBeUndefined();
  expect(plain.headers['vary']).toBe('Accept-Encoding');
  expect(plain.json()).toEqual(rows(COMPRESSED_FROM_BYTES));

  for (const url of ['/short', '/bytes'])
    expect((await app.inject({ url, headers })).headers['content-encoding']).toBeUndefined();
  await app.close();
});
