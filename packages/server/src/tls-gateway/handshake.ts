/** Reads how a client begins, up to the name of its server. It reads no more than it needs. */
import type { Duplex } from 'node:stream';
import { readChunk, readStart, REQUEST_BYTES, type Start } from '../lib/client-start.ts';
import { MAX_HELLO_BYTES, readClientHello, type Hello } from './client-hello.ts';

/** The bytes for the server, and its name; null: the client names none. */
export type Begun =
  | Readonly<{ kind: 'hello'; bytes: Buffer; name: string | null }>
  | Readonly<{
      kind: 'refused';
      why: 'no_tls' | 'cancel' | 'not_postgresql' | 'not_tls' | 'too_long' | 'slow' | 'gone';
    }>;

/** Requests for an encryption: one of each kind, as libpq sends them. */
const MAX_REQUESTS = 2;
/**
 * Each is read with all before it. A client needs one to three, and twelve for the longest hello in
 * segments of Ethernet.
 */
export const MAX_READS = 64;

/** @param signal of the end of the handshake @throws the reason of the signal */
export async function readHandshake(client: Duplex, signal: AbortSignal): Promise<Begun> {
  let bytes: Buffer = Buffer.alloc(0);
  let isTls = false;
  let reads = 0;
  for (let requests = 0; ;) {
    const start: Start | Hello = isTls ? readHello(bytes) : readStart(bytes);
    switch (start.kind) {
      case 'hello':
        return { kind: 'hello', bytes, name: start.name };
      case 'refused':
        return start;
      case 'tls':
        isTls = true;
        continue;
      case 'ssl':
      case 'gss':
        requests += 1;
        if (requests > MAX_REQUESTS) return { kind: 'refused', why: 'not_postgresql' };
        client.write(start.kind === 'ssl' ? 'S' : 'N');
        bytes = bytes.subarray(REQUEST_BYTES);
        isTls = start.kind === 'ssl';
        continue;
      case 'more': {
        reads += 1;
        if (reads > MAX_READS) return { kind: 'refused', why: 'slow' };
        const chunk = await readChunk(client, signal);
        if (chunk === null) return { kind: 'refused', why: 'gone' };
        bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
      }
    }
  }
}

function readHello(bytes: Buffer): Hello {
  const hello = readClientHello(bytes);
  // More than one may have come at once.
  return hello.kind === 'more' && bytes.length > MAX_HELLO_BYTES
    ? { kind: 'refused', why: 'too_long' }
    : hello;
}

/** Reads the answer to a request for TLS: one byte. @throws Error for any other answer */
export async function expectTls(server: Duplex, signal: AbortSignal): Promise<void> {
  const answer = await readChunk(server, signal);
  if (answer?.toString('latin1') !== 'S') throw new Error('the server does not offer TLS');
}
