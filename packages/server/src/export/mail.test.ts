import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { blockListOf } from '../events/outgoing-request.ts';
import { sendMail } from './mail.ts';

const MAIL = { id: 'alert_1', subject: 'a subject', text: 'a text' };
const HERE = blockListOf(['127.0.0.1']);

/** Sends a mail to a server that does as `serve` says. @returns the error */
async function errorOf(
  serve: (socket: Socket) => void,
  encryption: 'tls' | 'starttls' | 'none',
): Promise<string | null> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    serve(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address: AddressInfo | string | null = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const config = { host: '127.0.0.1', port, encryption, from: 'a@e.org', to: ['b@e.org'] };
  try {
    return (await sendMail(config, undefined, MAIL, HERE)).error;
  } finally {
    server.close();
  }
}

/** Greets, and answers the first commands with these lines. */
const answering =
  (...lines: string[]) =>
  (socket: Socket): void => {
    socket.write('220 mail\r\n');
    socket.on('data', () => {
      const line = lines.shift();
      if (line === undefined) socket.resetAndDestroy();
      else socket.write(`${line}\r\n`);
    });
  };

test.for<[string, (socket: Socket) => void, 'tls' | 'starttls' | 'none']>([
  ['ends the connection at once', (socket) => socket.resetAndDestroy(), 'starttls'],
  ['is no mail server', (socket) => void socket.write('HTTP/1.1 400 Bad Request\r\n'), 'none'],
  ['refuses the greeting', answering('550 no', '550 no'), 'none'],
  ['has no STARTTLS', answering('250 mail', '502 unknown'), 'starttls'],
  [
    'answers STARTTLS without TLS',
    answering('250-mail\r\n250 STARTTLS', '220 go on', 'nonsense', 'nonsense'),
    'starttls',
  ],
  ['speaks no TLS', (socket) => void socket.write('220 mail\r\n'), 'tls'],
  ['refuses the recipient', answering('250 mail', '250 ok', '550 no such user'), 'none'],
  ['ends the connection at the message', answering('250 mail', '250 ok', '250 ok'), 'none'],
  [
    'sends a line without end',
    (socket) => void socket.write('220 '.padEnd(1_000_000, 'x')),
    'none',
  ],
])('a server that %s is an error, and nothing else', async ([, serve, encryption]) => {
  const error = await errorOf(serve, encryption);
  expect(error).toMatch(/./);
  expect(error?.length).toBeLessThan(400);
});

test('addresses inside are refused, by number and by name', async () => {
  const config = { host: '127.0.0.1', port: 25, encryption: 'none' as const };
  for (const host of ['127.0.0.1', 'localhost', '2130706433', '::ffff:127.0.0.1', '[::1]'])
    expect((await sendMail({ ...config, host }, undefined, MAIL, blockListOf([]))).error).toMatch(
      /HOWDAH_WEBHOOK_NETWORKS|ENOTFOUND/,
    );
});
