/**
 * An error in place of a session, for clients that begin with TLS as well. Nobody is authenticated.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket, type SecureContext } from 'node:tls';
import { readChunk, readStart, REQUEST_BYTES } from '../../../lib/client-start.ts';

/** The SQLSTATE: libpq tries the next host of its connection string. */
export const CANNOT_CONNECT_NOW = '57P03';
/** A handshake takes some messages over a slow network. */
const CLIENT_MS = 10_000;
/** A client makes at most two requests, and sends each part in one or two segments. */
const MOST_STEPS = 16;

/** @see startError */
export type ClientNotice = Readonly<{ error: Buffer; secure: SecureContext }>;

/**
 * Answers a client with an error and ends its connection. Never fails.
 *
 * @param bytes what was read of it already
 */
export async function answerClient(
  socket: Socket,
  notice: ClientNotice,
  bytes: Buffer = Buffer.alloc(0),
): Promise<void> {
  const signal = AbortSignal.timeout(CLIENT_MS);
  // Nobody can keep the control plane from ending.
  socket.on('error', () => undefined).unref();
  signal.addEventListener('abort', () => socket.destroy());
  try {
    const client = await begin(socket, notice, bytes, signal);
    // Further bytes are read: a connection that is closed before may take the error along.
    if (client === null) socket.destroy();
    else client.end(notice.error).resume();
  } catch {
    socket.destroy();
  }
}

/** @returns the connection of a client that begins a session; null: it does not */
async function begin(
  socket: Socket,
  { secure }: ClientNotice,
  read: Buffer,
  signal: AbortSignal,
): Promise<Duplex | null> {
  let client: Duplex = socket;
  let bytes = read;
  for (let step = 0; step < MOST_STEPS; step += 1) {
    const start = readStart(bytes);
    switch (start.kind) {
      case 'more': {
        const chunk = await readChunk(client, signal);
        if (chunk === null) return null;
        bytes = Buffer.concat([bytes, chunk]);
        break;
      }
      case 'gss':
        client.write('N');
        bytes = bytes.subarray(REQUEST_BYTES);
        break;
      case 'ssl':
      case 'tls':
        if (client !== socket) return null;
        if (start.kind === 'ssl') socket.write('S');
        socket.unshift(start.kind === 'ssl' ? bytes.subarray(REQUEST_BYTES) : bytes);
        client = withTls(socket, secure);
        bytes = Buffer.alloc(0);
        break;
      case 'refused':
        return start.why === 'no_tls' ? client : null;
    }
  }
  return null;
}

/** The protocol is named by clients that begin with TLS. */
function withTls(socket: Socket, secureContext: SecureContext): TLSSocket {
  const options = { isServer: true, secureContext, ALPNProtocols: ['postgresql'] };
  return new TLSSocket(socket, options).on('error', () => undefined);
}
