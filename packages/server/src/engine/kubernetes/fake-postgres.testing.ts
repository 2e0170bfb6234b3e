/** A server that speaks the protocol of PostgreSQL up to the challenge of a login, over TLS. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { TLSSocket, createSecureContext } from 'node:tls';
import type { ServerCertificate } from '../../lib/tls.ts';

/** The answer to the startup message: a salt in base64, an error, or any bytes before the end. */
export type LoginAnswer =
  | { salt: string }
  | { sqlstate: string; message: string }
  | { bytes: Buffer };

export async function startFakePostgres(certificate: ServerCertificate, answer: () => LoginAnswer) {
  const context = createSecureContext({
    cert: certificate.certificatePem,
    key: certificate.keyPem,
  });
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('data', () => {
      socket.write('S');
      const tls = new TLSSocket(socket, { isServer: true, secureContext: context });
      tls.on('error', () => undefined);
      tls.once('data', () => {
        const given = answer();
        if ('bytes' in given) return void tls.end(given.bytes);
        if ('sqlstate' in given) {
          const fields = `SFATAL\0C${given.sqlstate}\0M${given.message}\0\0`;
          return void tls.end(message('E', Buffer.from(fields)));
        }
        tls.write(message('R', Buffer.from('\0\0\0\nSCRAM-SHA-256\0\0')));
        tls.once('data', () => {
          // In two parts, as a network may deliver it.
          const challenge = message('R', Buffer.from(`\0\0\0\u000br=nonce,s=${given.salt},i=4096`));
          tls.write(challenge.subarray(0, 7));
          setImmediate(() => tls.write(challenge.subarray(7)));
        });
      });
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    port: address.port,
    close: async (): Promise<void> => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** @param bytes the length that it says, the right one by default */
export function message(type: string, body: Buffer, bytes = 4 + body.length): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(bytes);
  return Buffer.concat([Buffer.from(type), length, body]);
}
