/** Whether a server is silent, by the answers of a TLS gateway. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  issueServerCertificate,
  openCertificateAuthority,
  type CertificateAuthority,
} from '../../../lib/tls.ts';
import { tlsAlert } from '../../../lib/client-start.ts';
import { startFakePostgres, type LoginAnswer } from '../fake-postgres.testing.ts';
import { askWhetherItAnswers } from './challenge.ts';

let directory: string;
let authority: CertificateAuthority;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hd-'));
  authority = await openCertificateAuthority(directory);
});
afterAll(() => rm(directory, { recursive: true }));

const HOST = '127.0.0.1';
const GATEWAY = { domain: 'db.example.com' };
const PORTS = { domain: null };

const ask = (port: number, region: { domain: string | null }) =>
  askWhetherItAnswers({ host: HOST, port }, authority.certificatePem, region);

/** A gateway that answers each client hello so. @returns what is known by it */
async function behind(answer: Buffer, region: { domain: string | null }) {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      socket.write('S');
      socket.once('data', () => socket.end(answer));
    });
  });
  server.listen(0, HOST);
  await once(server, 'listening');
  const address = server.address();
  try {
    return await ask(typeof address === 'object' ? (address?.port ?? 0) : 0, region);
  } finally {
    server.close();
  }
}

async function server(answer: LoginAnswer, region: { domain: string | null }) {
  const certificate = await issueServerCertificate(authority, [HOST]);
  const postgres = await startFakePostgres(certificate, () => answer);
  try {
    return await ask(postgres.port, region);
  } finally {
    await postgres.close();
  }
}

const unknown = { unknown: expect.stringContaining(`no login at ${HOST}:`) };

test('a gateway says that nobody listens at the service, and else nothing is known', async () => {
  expect(await behind(tlsAlert('internal_error'), GATEWAY)).toBe(false);
  expect(await behind(tlsAlert('access_denied'), GATEWAY)).toEqual(unknown);
  expect(await behind(tlsAlert('unrecognized_name'), GATEWAY)).toEqual(unknown);
  expect(await behind(Buffer.alloc(0), GATEWAY)).toEqual(unknown);
  // Nobody listens there: the gateway is away.
  expect(await ask(1, GATEWAY)).toEqual(unknown);
});

test('a server that answers is not silent', async () => {
  expect(await server({ salt: 'c2FsdA==' }, GATEWAY)).toBe(true);
  expect(await server({ salt: 'c2FsdA==' }, PORTS)).toBe(true);
  const ends = { sqlstate: '57P03', message: 'the database system is shutting down' };
  expect(await server(ends, GATEWAY)).toEqual(unknown);
});

test('a port of a node that does not answer is silent', async () => {
  expect(await ask(1, PORTS)).toBe(false);
});
