/**
 * How a client of PostgreSQL begins, and how a server refuses it.
 * https://www.postgresql.org/docs/current/protocol-message-formats.html
 */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';

export type Start =
  /** The start is not complete. */
  | Readonly<{ kind: 'more' }>
  /** The client begins with TLS: `sslnegotiation=direct`. */
  | Readonly<{ kind: 'tls' }>
  /** The client asks for an encryption first, in `REQUEST_BYTES` bytes. */
  | Readonly<{ kind: 'ssl' | 'gss' }>
  | Readonly<{ kind: 'refused'; why: 'no_tls' | 'cancel' | 'not_postgresql' }>;

export const REQUEST_BYTES = 8;
const TLS_HANDSHAKE = 22;
const SSL = 80_877_103;
const GSS = 80_877_104;
const CANCEL = 80_877_102;
const PROTOCOL_MAJOR = 3;
/** The least length of a request to cancel. */
const CANCEL_BYTES = 16;
/** A start packet is shorter, so the first byte of its length is 0. */
const MAX_START_BYTES = 10_000;

const refused = (why: 'no_tls' | 'cancel' | 'not_postgresql'): Start => ({ kind: 'refused', why });

/** @param bytes all that the client has sent, without requests that were answered */
export function readStart(bytes: Buffer): Start {
  if (bytes.length === 0) return { kind: 'more' };
  if (bytes[0] === TLS_HANDSHAKE) return { kind: 'tls' };
  if (bytes[0] !== 0) return refused('not_postgresql');
  if (bytes.length < REQUEST_BYTES) return { kind: 'more' };
  const length = bytes.readUInt32BE(0);
  const code = bytes.readUInt32BE(4);
  if (length < REQUEST_BYTES || length > MAX_START_BYTES) return refused('not_postgresql');
  if (code === SSL && length === REQUEST_BYTES) return { kind: 'ssl' };
  if (code === GSS && length === REQUEST_BYTES) return { kind: 'gss' };
  if (code === CANCEL && length >= CANCEL_BYTES) return refused('cancel');
  return refused(code >>> 16 === PROTOCOL_MAJOR ? 'no_tls' : 'not_postgresql');
}

/** The request for TLS, as a client sends it. */
export function sslRequest(): Buffer {
  const request = Buffer.alloc(REQUEST_BYTES);
  request.writeUInt32BE(REQUEST_BYTES, 0);
  request.writeUInt32BE(SSL, 4);
  return request;
}

/**
 * Reads what a client has sent since.
 *
 * @param signal of the end of the socket too
 * @returns null: it has ended @throws the reason of the signal
 */
export async function readChunk(socket: Duplex, signal: AbortSignal): Promise<Buffer | null> {
  for (;;) {
    signal.throwIfAborted();
    const chunk: unknown = socket.read();
    if (Buffer.isBuffer(chunk)) return chunk;
    if (socket.readableEnded || socket.destroyed) return null;
    await once(socket, 'readable', { signal });
  }
}

/**
 * The error in place of a session.
 *
 * @param code the SQLSTATE
 */
export function startError(code: string, message: string, hint?: string): Buffer {
  const fields = ['SFATAL', 'VFATAL', `C${code}`, `M${message}`];
  if (hint !== undefined) fields.push(`H${hint}`);
  const body = Buffer.from(`${fields.join('\0')}\0\0`);
  const head = Buffer.alloc(5);
  head.write('E', 0, 'latin1');
  head.writeUInt32BE(4 + body.length, 1);
  return Buffer.concat([head, body]);
}

/** Descriptions of alerts: RFC 8446, section 6. */
const ALERTS = { access_denied: 49, internal_error: 80, unrecognized_name: 112 } as const;

/** A fatal alert, in place of the answer to a client hello. */
export const tlsAlert = (name: keyof typeof ALERTS): Buffer =>
  Buffer.from([21, 3, 3, 0, 2, 2, ALERTS[name]]);
