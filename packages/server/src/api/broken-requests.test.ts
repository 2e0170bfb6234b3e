import { fastify } from 'fastify';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { answerBrokenRequest, refuseTunnel } from './broken-requests.ts';

const app = fastify({ clientErrorHandler: answerBrokenRequest });
let port = 0;
beforeAll(async () => {
  app.server.on('connect', (_request, socket) => refuseTunnel(socket));
  app.get('/', async () => ({}));
  port = Number(new URL(await app.listen({ port: 0, host: '127.0.0.1' })).port);
});
afterAll(() => app.close());

/** Sends bytes, and returns all that comes back until the server closes. */
const send = (bytes: string | Buffer): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    socket.on('error', reject).on('close', () => resolve(text));
    socket.write(bytes);
  });

test('a method that the HTTP server does not know is 405 with the methods that there are', async () => {
  for (const line of ['BREW /x?y=1', 'CONNECT example.com:443', 'X-Y9 /']) {
    const answer = await send(`${line} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}`);
    expect(answer, line).toMatch(/^HTTP\/1\.1 405 Method Not Allowed\r\n/);
    expect(answer, line).toContain('\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE\r\n');
    const body: unknown = JSON.parse(answer.split('\r\n\r\n')[1] ?? '');
    expect(body, line).toMatchObject({
      code: 'METHOD_NOT_ALLOWED',
      request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
  }
});

test('bytes that only resemble a request line are 400', async () => {
  for (const bytes of [
    'GARBAGE\r\n\r\n',
    'BREW /x\r\n\r\n',
    'BREW /x HTTP/9.9\r\n\r\n',
    'brew /x HTTP/1.1\r\n\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]),
  ])
    expect(await send(bytes), String(bytes)).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
});
