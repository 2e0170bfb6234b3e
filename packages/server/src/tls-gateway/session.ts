/** One client of the TLS gateway, from its first byte to its end. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { pass, within } from '../lib/sockets.ts';
import type { FullReason, Places, Leave } from './limits.ts';
import { TooManyLookups, type Route, type Routes } from './routes.ts';
import {
  sslRequest,
  startError,
  tlsAlert,
  readChunk,
  readStart,
  REQUEST_BYTES,
  type Start,
} from '../lib/client-start.ts';
import { MAX_HELLO_BYTES, readClientHello, type Hello } from './client-hello.ts';

/** Why a client is not connected to a server: a label of the metrics. */
export type Refusal =
  | FullReason
  | 'no_tls'
  | 'cancel'
  | 'not_postgresql'
  | 'not_tls'
  | 'too_long'
  | 'no_name'
  | 'unknown_name'
  | 'lookups'
  | 'no_dns'
  | 'slow'
  | 'unreachable'
  | 'no_answer'
  | 'gone';

export type Timeouts = Readonly<{
  /** Until a client has named its server. */
  handshakeMs: number;
  /** Until the DNS has answered. */
  lookupMs: number;
  /** Until the server has answered. */
  connectMs: number;
  /** For what is on its way when one side has ended. */
  endMs: number;
}>;

type Parts = Readonly<{
  places: Places;
  routes: Routes;
  timeouts: Timeouts;
  /** The port of servers and poolers. */
  port: number;
  refused: (why: Refusal) => void;
  connected: () => void;
}>;

const KEEPALIVE_MS = 30_000;

/** Never fails. Ends when the client is connected to its server, or refused. */
export async function serveClient(client: Socket, parts: Parts): Promise<void> {
  client.on('error', () => undefined); // its end follows
  const address = client.remoteAddress;
  if (address === undefined) return void client.destroy();
  const place = parts.places.takeHandshake(address);
  if ('full' in place) {
    parts.refused(place.full);
    client.destroy();
    return;
  }
  // Refused ones count until they are closed.
  client.once('close', place.leave);
  client.setNoDelay(true).setKeepAlive(true, KEEPALIVE_MS);
  const why = await connectClient(client, parts).catch((): Refusal => 'no_answer');
  if (why === null) place.leave();
  else refuse(client, why, parts);
}

function refuse(client: Socket, why: Refusal, { refused }: Parts): void {
  refused(why);
  const answer = answerTo(why);
  if (answer !== null) client.write(answer);
  // Closed as soon as that is sent, whatever the client does.
  client.destroySoon();
}

const NO_TLS = 'TLS is required: connect with sslmode=require or sslmode=verify-full';

/** @returns null: nothing is answered */
function answerTo(why: Refusal): Buffer | null {
  switch (why) {
    case 'no_tls':
      return startError('28000', NO_TLS);
    case 'no_name':
    case 'unknown_name':
      return tlsAlert('unrecognized_name');
    case 'sessions':
    case 'sessions_of_project':
    case 'sessions_of_service':
    case 'lookups':
    case 'no_dns':
    case 'no_answer':
      return tlsAlert('access_denied');
    case 'unreachable':
      // The control plane relies on it: nothing listens at the service.
      return tlsAlert('internal_error');
    default:
      return null;
  }
}

/** @returns why it is refused; null: it is connected */
async function connectClient(client: Socket, parts: Parts): Promise<Refusal | null> {
  const { places, timeouts } = parts;
  const begun = await within([client], timeouts.handshakeMs, (signal) =>
    readHandshake(client, signal),
  );
  if (begun === null) return client.destroyed ? 'gone' : 'slow';
  if (begun.kind === 'refused') return begun.why;
  if (begun.name === null) return 'no_name';
  const { name } = begun;
  const route = await within([client], timeouts.lookupMs, (signal) =>
    Promise.race([findRoute(parts, name), endOf(signal)]),
  );
  if (route === null) return client.destroyed ? 'gone' : 'no_dns';
  if (typeof route === 'string') return route;
  if (client.destroyed) return 'gone';
  const place = places.takeSession(route);
  if ('full' in place) return place.full;
  const server = connect({ host: route.address, port: parts.port, noDelay: true });
  let nobodyListens = false;
  server.on('error', (error) => {
    nobodyListens = 'code' in error && error.code === 'ECONNREFUSED';
  });
  leaveAfter([client, server], place.leave);
  const isReady = await within([client, server], timeouts.connectMs, (signal) =>
    startTls(server, signal),
  );
  if (isReady === null) {
    server.destroy();
    if (client.destroyed) return 'gone';
    return nobodyListens ? 'unreachable' : 'no_answer';
  }
  server.setKeepAlive(true, KEEPALIVE_MS);
  server.write(begun.bytes);
  pass(client, server, timeouts.endMs);
  parts.connected();
  return null;
}

async function findRoute({ routes }: Parts, name: string): Promise<Route | Refusal> {
  try {
    return (await routes.find(name)) ?? 'unknown_name';
  } catch (error) {
    return error instanceof TooManyLookups ? 'lookups' : 'no_dns';
  }
}

async function startTls(server: Socket, signal: AbortSignal): Promise<true> {
  await once(server, 'connect', { signal });
  server.write(sslRequest());
  await expectTls(server, signal);
  return true;
}

const endOf = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(new Error('it took too long'))),
  );

// The two sides of a session, which end with each other.

/** Leaves a place once both sides are closed. */
export function leaveAfter(sockets: readonly Socket[], leave: Leave): void {
  const open = new Set(sockets);
  for (const socket of sockets) {
    const closed = (): void => {
      open.delete(socket);
      if (open.size === 0) leave();
    };
    if (socket.closed) closed();
    else socket.once('close', closed);
  }
}

// Reads how a client begins, up to the name of its server. It reads no more than it needs.

/** The bytes for the server, and its name; null: the client names none. */
type Begun =
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
async function expectTls(server: Duplex, signal: AbortSignal): Promise<void> {
  const answer = await readChunk(server, signal);
  if (answer?.toString('latin1') !== 'S') throw new Error('the server does not offer TLS');
}
