/**
 * A real S3 server, versitygw, which speaks TLS with a certificate of an authority of its own,
 * behind a proxy that fails in the ways of servers and networks. Its address stays the same.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer as createHttpsServer, request, type RequestOptions } from 'node:https';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { vi } from 'vitest';
import {
  issueServerCertificate,
  LEAF_DAYS,
  openCertificateAuthority,
  type ServerCertificate,
  type Storage,
} from '../test/probe.ts';
import { words } from './cloud-server.ts';
import { close, HOST, listen, startTlsServer } from './tls-server.ts';
import { atMoment } from '../test/until.ts';

const BUCKET = 'backups';
const [KEY_ID, KEY] = ['key-of-the-test', 'secret-of-the-test'];

/** An answer to every request, or only to those that write. */
export type Refusal = { status: number; code: string; refuses: 'all' | 'writes' };

/**
 * - `slow`: each part of a request and of its answer comes late;
 * - `silent`: connections are accepted, and nothing comes, also in those that there are;
 * - `another key`: the secret key was replaced on the server;
 * - `expired`, `untrusted`: its certificate has expired, or is of another authority.
 */
export type Fault = 'none' | 'slow' | 'silent' | 'another key' | 'expired' | 'untrusted' | Refusal;

export type S3Server = Awaited<ReturnType<typeof startS3>>;

/** @param directory its own; the objects are the files in `data/backups` */
export async function startS3(directory: string) {
  const objects = join(directory, 'data', BUCKET);
  await mkdir(objects, { recursive: true });
  const authority = await openCertificateAuthority(join(directory, 'ca'));
  const valid = await issueServerCertificate(authority, [HOST]);
  const [real, rekeyed] = [
    await startVersity(directory, valid, KEY),
    await startVersity(directory, valid, 'another secret'),
  ];
  const ports = {
    real: real.port,
    rekeyed: rekeyed.port,
    ...(await startFailing(directory, valid, real.port)),
  };
  const proxy = await startProxy((fault) => portFor(fault, ports));
  const storage: Extract<Storage, { type: 's3' }> = {
    type: 's3',
    endpoint: `https://${HOST}:${proxy.port}`,
    bucket: BUCKET,
    region: 'us-east-1',
    keyId: KEY_ID,
    key: KEY,
    uriStyle: 'path',
    ca: authority.certificatePem,
    prefix: '/howdah',
  };
  return {
    storage,
    /** The directory that has the objects of the bucket, by their names. */
    objects,
    /** The options of `howdah repo add`, each with its value. */
    options: async (more: Record<string, string> = {}): Promise<string[]> => {
      const { endpoint, bucket, region, keyId, key } = storage;
      const keyFile = join(directory, 'key');
      await writeFile(keyFile, key);
      const place = { s3: endpoint, bucket, region, 'uri-style': 'path' };
      const files = { 'key-file': keyFile, 'ca-file': join(directory, 'ca', 'ca.pem') };
      const options = { ...place, 'key-id': keyId, ...files, ...more };
      return words(options);
    },
    /** Fails in a way from now on. */
    fail: (fault: Fault): void => {
      if (typeof fault === 'object') ports.refuse(fault);
      proxy.fail(fault);
    },
    stop: async (): Promise<void> => {
      await Promise.all([proxy.close(), ports.close(), real.stop(), rekeyed.stop()]);
    },
  };
}

type Ports = { real: number; rekeyed: number } & Awaited<ReturnType<typeof startFailing>>;

/** The server that a connection goes to; null: to none. */
function portFor(fault: Fault, ports: Ports): number | null {
  if (typeof fault === 'object') return ports.refusing;
  switch (fault) {
    case 'none':
    case 'slow':
      return ports.real;
    case 'silent':
      return null;
    case 'another key':
      return ports.rekeyed;
    case 'expired':
      return ports.expired;
    case 'untrusted':
      return ports.untrusted;
  }
}

function startVersity(directory: string, certificate: ServerCertificate, secret: string) {
  return startTlsServer({
    name: 'versitygw',
    directory,
    certificate,
    args: ({ port, certificate: file, key }) => [
      ...words({ port: `${HOST}:${port}`, cert: file, key, quiet: '', 'keep-alive': '' }),
      'posix',
      join(directory, 'data'),
    ],
    env: { ROOT_ACCESS_KEY: KEY_ID, ROOT_SECRET_KEY: secret },
  });
}

/** Servers with a wrong certificate, and one that refuses and otherwise asks the real one. */
async function startFailing(directory: string, valid: ServerCertificate, real: number) {
  const authority = await openCertificateAuthority(join(directory, 'ca'));
  const other = await openCertificateAuthority(join(directory, 'another-ca'));
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - (LEAF_DAYS + 2) * 86_400_000 });
  const old = await issueServerCertificate(authority, [HOST]).finally(() => vi.useRealTimers());
  let refusal: Refusal = { status: 500, code: 'InternalError', refuses: 'all' };
  const servers = [valid, old, await issueServerCertificate(other, [HOST])].map(
    ({ certificatePem, keyPem }) =>
      createHttpsServer({ cert: certificatePem, key: keyPem }, (incoming, response) => {
        const { status, code, refuses } = refusal;
        const { method, url: path, headers } = incoming;
        if (refuses === 'all' || method === 'PUT' || method === 'POST') {
          const text = `<?xml version="1.0"?><Error><Code>${code}</Code></Error>`;
          incoming.resume().on('end', () => {
            response.writeHead(status, { 'content-type': 'application/xml' }).end(text);
          });
          return;
        }
        const to: RequestOptions = { host: HOST, port: real, rejectUnauthorized: false };
        const onward = request({ ...to, method, path, headers }, (answer) => {
          response.writeHead(answer.statusCode ?? 500, answer.headers);
          answer.pipe(response);
        }).on('error', () => response.destroy());
        incoming.pipe(onward);
      }),
  );
  const [refusing = 0, expired = 0, untrusted = 0] = await Promise.all(
    servers.map((server) => listen(server)),
  );
  return {
    refusing,
    expired,
    untrusted,
    refuse: (next: Refusal): void => {
      refusal = next;
    },
    close: async (): Promise<void> => {
      for (const server of servers) server.closeAllConnections();
      await Promise.all(servers.map(close));
    },
  };
}

/** How late each part of what is sent comes. */
const SLOW_MS = 100;

async function passLate(bytes: Buffer, from: Socket, to: Socket): Promise<void> {
  await atMoment(SLOW_MS);
  to.write(bytes);
  from.resume();
}

/** A proxy below TLS: the certificate that clients see is the server's. */
async function startProxy(portFor: (fault: Fault) => number | null) {
  let fault: Fault = 'none';
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): Socket => {
    sockets.add(socket);
    return socket.on('close', () => sockets.delete(socket)).on('error', () => socket.destroy());
  };
  const pass = (from: Socket, to: Socket): void => {
    from.on('data', (bytes: Buffer) => {
      if (fault === 'silent') return;
      if (fault !== 'slow') return void to.write(bytes);
      from.pause();
      void passLate(bytes, from, to);
    });
    from.on('close', () => fault !== 'silent' && to.destroySoon());
  };
  const server = createServer((client) => {
    keep(client);
    const port = portFor(fault);
    if (port === null) return;
    const upstream = keep(connect(port, HOST));
    pass(client, upstream);
    pass(upstream, client);
  });
  return {
    port: await listen(server),
    fail: (next: Fault): void => {
      fault = next;
      // A silent one does not even end its connections.
      if (fault !== 'silent') for (const socket of sockets) socket.destroy();
    },
    close: async (): Promise<void> => {
      for (const socket of sockets) socket.destroy();
      await close(server);
    },
  };
}
