/**
 * Answers clients of the former endpoint of a service that has moved to another region: the error
 * says where it is, and nothing else, since nobody is authenticated. Anybody may connect, so each
 * client has limits.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { createSecureContext, type SecureContext } from 'node:tls';
import { startError } from '../../../lib/client-start.ts';
import { LEAF_DAYS, RENEW_BEFORE_DAYS, type CertificateIssuer } from '../../../lib/tls.ts';
import type { Endpoint } from '../../spec.ts';
import { answerClient, CANNOT_CONNECT_NOW } from './client-notice.ts';

const DAY_MS = 86_400_000;
const RENEWED_AFTER_MS = (LEAF_DAYS - RENEW_BEFORE_DAYS) * DAY_MS;
/** At one endpoint at a time; others are not accepted. */
const MOST_CLIENTS = 32;
/** For all endpoints together. A handshake takes about a millisecond of the control plane. */
const MOST_A_SECOND = 50;
const HINT = 'Its databases, roles and passwords are the same.';

type Notice = { server: Server; error: Buffer; secure: SecureContext; madeMs: number };

/** @param listenAddress that of the servers of this machine */
export function createMovedNotices(issuer: CertificateIssuer, listenAddress: string) {
  const notices = new Map<string, Notice>();
  const mayEnter = createRate(MOST_A_SECOND, Date.now);

  const makeContext = async (): Promise<SecureContext> => {
    const { certificatePem, keyPem } = await issuer.take([]);
    return createSecureContext({ cert: certificatePem, key: keyPem });
  };
  const listen = async (id: string, port: number): Promise<Server> => {
    const server = createServer((socket) => {
      const notice = notices.get(id);
      if (notice === undefined || !mayEnter()) socket.destroy();
      else void answerClient(socket, notice);
    });
    server.maxConnections = MOST_CLIENTS;
    server.listen(port, listenAddress);
    await once(server, 'listening');
    // An error of accept ends nothing, and the control plane may end while it listens.
    server.on('error', () => undefined).unref();
    return server;
  };

  return {
    /**
     * Begins to answer clients at a port. It may be repeated.
     *
     * @throws Error when the port cannot be listened on
     */
    open: async (id: string, port: number, current: Endpoint): Promise<void> => {
      const error = startError(CANNOT_CONNECT_NOW, messageFor(current), HINT);
      const known = notices.get(id);
      if (known === undefined) {
        const [secure, madeMs] = [await makeContext(), Date.now()];
        notices.set(id, { server: await listen(id, port), error, secure, madeMs });
        return;
      }
      known.error = error;
      if (Date.now() - known.madeMs < RENEWED_AFTER_MS) return;
      [known.secure, known.madeMs] = [await makeContext(), Date.now()];
    },
    /** The port is free at once; clients that are connected get no answer. */
    close: (id: string): void => {
      notices.get(id)?.server.close();
      notices.delete(id);
    },
  };
}

function messageFor({ host, port }: Endpoint): string {
  const at = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  return `this service has moved to another region: connect to ${at}`;
}

/** @returns whether another one may enter in this second */
export function createRate(mostASecond: number, nowMs: () => number): () => boolean {
  let [second, entered] = [0, 0];
  return () => {
    const now = Math.floor(nowMs() / 1000);
    if (now !== second) [second, entered] = [now, 0];
    entered += 1;
    return entered <= mostASecond;
  };
}
