/** Whether a server is silent, by the answers of a TLS gateway. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  issueServerCertificate,
  openCertificateAuthority,
  type CertificateAuthority,
} from '../../../lib/tls.ts';
import { EngineUnavailable } from '../../engine.ts';
import { tlsAlert } from '../../../lib/client-start.ts';
import { message, startFakePostgres, type LoginAnswer } from '../fake-postgres.testing.ts';
import { askChallenge, askWhetherItAnswers } from './challenge.ts';

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

async function withServer<T>(answer: LoginAnswer, work: (port: number) => Promise<T>): Promise<T> {
  const certificate = await issueServerCertificate(authority, [HOST]);
  const postgres = await startFakePostgres(certificate, () => answer);
  try {
    return await work(postgres.port);
  } finally {
    await postgres.close();
  }
}

const server = (answer: LoginAnswer, region: { domain: string | null }) =>
  withServer(answer, (port) => ask(port, region));

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

const challenge = (answer: LoginAnswer) =>
  withServer(answer, (port) => askChallenge({ host: HOST, port }, authority.certificatePem));

test('the salt of a role is read, and that the address is not allowed', async () => {
  expect(await challenge({ salt: 'c2FsdA==' })).toEqual({ kind: 'salt', salt: 'c2FsdA==' });
  const disallowed = { sqlstate: '28000', message: 'no pg_hba.conf entry' };
  expect(await challenge(disallowed)).toEqual({ kind: 'disallowed' });
});

describe('an answer that breaks the protocol is an error, and delays nobody', () => {
  const SASL = '\0\0\0\n';
  test.each([
    ['an error without its end', message('E', Buffer.from('SFATAL')), /refused it/],
    ['an error of nothing', message('E', Buffer.alloc(0)), /refused it/],
    ['no length', message('E', Buffer.alloc(0), 0), /does not speak the protocol/],
    ['a negative length', message('R', Buffer.alloc(0), -1), /does not speak the protocol/],
    ['a length of gigabytes', message('R', Buffer.alloc(0), 2 ** 31 - 1), /does not speak/],
    ['a message that ends early', message('R', Buffer.alloc(4), 100), /was closed/],
    ['nothing', Buffer.alloc(0), /was closed/],
    ['an unknown authentication', message('R', Buffer.from([0, 0, 0, 99])), /ask for SCRAM/],
    ['an authentication of one byte', message('R', Buffer.from([0])), /no login/],
    ['no mechanism, and the end', message('R', Buffer.from(SASL)), /was closed/],
    ['a challenge without a salt', message('R', Buffer.from('\0\0\0\u000br=x')), /for SCRAM/],
    ['a long notice, and the end', message('N', Buffer.alloc(60_000)), /was closed/],
  ])('%s', async (_, bytes, why) => {
    await expect(challenge({ bytes })).rejects.toThrow(EngineUnavailable);
    await expect(challenge({ bytes })).rejects.toThrow(why);
  });
});
