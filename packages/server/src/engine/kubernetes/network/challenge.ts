/**
 * Asks PostgreSQL at an endpoint for the challenge of a login as tsdbadmin, over TLS. The control
 * plane has no password of a service, and needs none: a server sends the challenge once it accepts
 * connections, with the salt of the role's verifier.
 *
 * Protocol: https://www.postgresql.org/docs/17/protocol-flow.html and RFC 5802, section 5.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { randomBytes } from 'node:crypto';
import { serialize } from 'pg-protocol';
import { EngineUnavailable } from '../../engine.ts';
import type { Endpoint } from '../../spec.ts';

/** The answer of a server. */
export type Challenge =
  /** In base64. A role without a password gets a made-up salt. */
  | Readonly<{ kind: 'salt'; salt: string }>
  /** The server runs, and the networks of the control plane are not allowed. */
  | Readonly<{ kind: 'disallowed' }>;

/** Short: the status of a service says whether it answers, and a drill measures that. */
const DEADLINE_MS = 5000;
/** Longest message that is read; a challenge has about 100 bytes. */
const MAX_BYTES = 65_536;
/** `invalid_authorization_specification`: a rule of pg_hba.conf refuses the address. */
const DISALLOWED = '28000';
/** PgBouncer has no code of its own for that. It looks the role up first. */
const REJECTED = 'login rejected';

/** @throws EngineUnavailable with the reason, when nobody answers or PostgreSQL refuses */
export async function askChallenge(
  { host, port }: Endpoint,
  authorityPem: string,
): Promise<Challenge> {
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const sockets: Socket[] = [];
  signal.addEventListener('abort', () =>
    sockets.at(-1)?.destroy(new Error(`no answer within ${DEADLINE_MS / 1000} s`)),
  );
  try {
    const tcp = connectTcp({ host, port });
    sockets.push(tcp);
    const tls = await startTls(tcp, host, authorityPem);
    sockets.push(tls);
    return await login(tls);
  } catch (error) {
    const why = messageOf(error);
    throw new EngineUnavailable(`no login at ${host}:${port}: ${why}`, { cause: error });
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

/** The alert of a TLS gateway that was refused at the port of the service. */
const NOBODY_LISTENS = 'ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR';

/**
 * Whether PostgreSQL answers.
 *
 * @returns the reason why that is not known: a TLS gateway, or the way to it, has failed
 */
export async function askWhetherItAnswers(
  endpoint: Endpoint,
  authorityPem: string,
  { domain }: Readonly<{ domain: string | null }>,
): Promise<boolean | Readonly<{ unknown: string }>> {
  try {
    await askChallenge(endpoint, authorityPem);
    return true;
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error;
    const { cause, message } = error;
    const isSilent = cause instanceof Error && 'code' in cause && cause.code === NOBODY_LISTENS;
    return domain === null || isSilent ? false : { unknown: message };
  }
}

/** Asks a server to begin TLS. @throws Error when it does not */
export async function requestTls(tcp: Socket): Promise<void> {
  tcp.write(serialize.requestSsl());
  const answer = await nextChunk(tcp);
  if (answer.toString('latin1') !== 'S') throw new Error('it does not offer TLS');
}

async function startTls(tcp: Socket, host: string, ca: string): Promise<TLSSocket> {
  await requestTls(tcp);
  const tls = connectTls({
    socket: tcp,
    host,
    ca,
    ...(isIP(host) === 0 ? { servername: host } : {}),
  });
  await new Promise<void>((resolve, reject) => {
    tls.once('secureConnect', resolve);
    tls.once('error', reject);
  });
  return tls;
}

async function login(tls: TLSSocket): Promise<Challenge> {
  const names = { user: ADMIN_ROLE, database: DATABASE_NAME, application_name: 'howdah' };
  tls.write(serialize.startup(names));
  let received: Buffer = Buffer.alloc(0);
  for (;;) {
    const message = messageIn(received);
    if (message === null) {
      received = Buffer.concat([received, await nextChunk(tls)]);
      if (received.length > MAX_BYTES) throw new Error('its answer is too long');
      continue;
    }
    received = received.subarray(1 + message.length);
    if (message.type === 'E') return refusalIn(message.body);
    if (message.type !== 'R') continue;
    const salt = saltIn(message.body);
    if (salt !== null) return { kind: 'salt', salt };
    if (message.body.readInt32BE(0) !== SASL) throw new Error('it does not ask for SCRAM');
    tls.write(firstMessage());
  }
}

/** Kinds of authentication messages. */
const SASL = 10;
const SASL_CONTINUE = 11;

function firstMessage(): Buffer {
  const nonce = randomBytes(18).toString('base64');
  return serialize.sendSASLInitialResponseMessage('SCRAM-SHA-256', `n,,n=,r=${nonce}`);
}

type Message = Readonly<{ type: string; length: number; body: Buffer }>;

/**
 * The first message of what was received; null: it is not complete. The parser of pg-protocol is
 * not used: it never returns from an error without its end, and throws in a listener.
 */
function messageIn(received: Buffer): Message | null {
  if (received.length < 5) return null;
  const length = received.readInt32BE(1);
  if (length < 4 || length > MAX_BYTES) throw new Error('it does not speak the protocol');
  if (received.length < 1 + length) return null;
  return {
    type: String.fromCharCode(received.readUInt8(0)),
    length,
    body: received.subarray(5, 1 + length),
  };
}

function saltIn(body: Buffer): string | null {
  if (body.length < 4 || body.readInt32BE(0) !== SASL_CONTINUE) return null;
  return /(?:^|,)s=([^,]+)/.exec(body.toString('utf8', 4))?.[1] ?? null;
}

/** @throws Error with the message of PostgreSQL */
function refusalIn(body: Buffer): Challenge {
  const fields = new Map(
    body
      .toString('utf8')
      .split('\0')
      .map((field) => [field.slice(0, 1), field.slice(1)]),
  );
  if (fields.get('C') === DISALLOWED || fields.get('M') === REJECTED) return { kind: 'disallowed' };
  throw new Error(fields.get('M') ?? 'PostgreSQL refused it');
}

function nextChunk(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const ended = (): void => reject(new Error('the connection was closed'));
    const settle = (then: () => void): void => {
      socket.off('data', got).off('error', failed).off('close', ended);
      socket.pause();
      then();
    };
    const got = (chunk: Buffer): void => settle(() => resolve(chunk));
    const failed = (error: Error): void => settle(() => reject(error));
    socket.on('data', got).once('error', failed).once('close', ended);
    socket.resume();
  });
}

/** The salt of a SCRAM verifier; null: it is none. */
export function saltOf(verifier: string): string | null {
  return /^SCRAM-SHA-256\$\d+:([^$]+)\$/.exec(verifier)?.[1] ?? null;
}
