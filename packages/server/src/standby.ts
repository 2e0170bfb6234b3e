/**
 * A control plane that waits while another one holds the lock of the metadata database. It passes
 * connections on to that one, so clients and Kubernetes can use either of them. Without another one
 * it answers that there is none.
 */
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer, type Socket } from 'node:net';
import { VERSION } from '@howdah/contract/version';
import type { ServerCertificate } from './lib/tls.ts';
import type { Address } from './store/connections.ts';

/** How long a connection to the other control plane may take. */
const CONNECT_MS = 5000;

export type Standby = Readonly<{
  /** Passes connections on to this control plane from now on; null: to none. */
  follow: (address: Address | null) => void;
  /** Frees the port, unless it is free. Connections that are passed on end. */
  close: () => void;
}>;

/** @param certificate of its own answers; null: without TLS */
export async function openStandby(
  { host, port }: Address,
  certificate: ServerCertificate | null,
): Promise<Standby> {
  const waiting =
    certificate === null
      ? createHttpServer(answerWithout)
      : createHttpsServer(
          { cert: certificate.certificatePem, key: certificate.keyPem },
          answerWithout,
        );
  const sockets = new Set<Socket>();
  let followed: Address | null = null;
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    if (followed === null) waiting.emit('connection', socket);
    else passOn(socket, followed);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen({ host, port }, resolve);
  });
  return {
    follow: (address) => {
      followed = address;
    },
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function passOn(socket: Socket, to: Address): void {
  const other = connect({ ...to, timeout: CONNECT_MS });
  other.once('connect', () => other.setTimeout(0));
  other.once('timeout', () => other.destroy());
  for (const [from, into] of [
    [socket, other],
    [other, socket],
  ] as const) {
    from.on('error', () => undefined); // both end with it
    from.once('close', () => into.destroy());
    from.pipe(into);
  }
}

/** As the API answers: the process is well, and nothing else can be done. */
const answerWithout: RequestListener = (request, response) => {
  const isWell = request.url === '/healthz';
  response.writeHead(isWell ? 200 : 503, {
    'content-type': 'application/json',
    connection: 'close',
  });
  response.end(JSON.stringify(isWell ? { status: 'ok', version: VERSION } : NO_CONTROL_PLANE));
};

const NO_CONTROL_PLANE = {
  code: 'UNAVAILABLE',
  message: 'no control plane uses the metadata database yet; try again in a moment',
};
