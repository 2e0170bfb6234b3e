/**
 * Every error as the API answers it: one translation, for what our code throws, what Fastify
 * refuses and what the database says.
 */
import { isIPv6 } from 'node:net';
import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import {
  ApiError,
  CONSOLE_HEADER,
  ERROR_STATUS,
  inQuotes,
  VISIBLE_PATTERN,
  type ErrorCode,
} from '@howdah/contract';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { RegionNotServed } from '../engine/regions.ts';
import { ClientLeft } from './reply.ts';

type ValidationProblem = NonNullable<FastifyError['validation']>[number] & {
  data?: unknown;
  parentSchema?: { description?: unknown; properties?: object };
};

/**
 * Makes the handler that answers an error, whatever was thrown. Only {@link ApiError}s and
 * Fastify's own refusals are shown; the rest is logged. Without the metadata database every request
 * fails alike, so these lines are limited: they would push the cause out of the control log.
 */
export function createErrorHandler(nowMs: () => number = Date.now): ErrorHandler {
  let [nextLineMs, omitted] = [0, 0];
  return (error, request, reply) => {
    const shown = translate(error);
    if (shown.code === 'INTERNAL') request.log.error({ err: error }, 'a request failed');
    if (shown.code === 'UNAVAILABLE') {
      if (nowMs() < nextLineMs) omitted += 1;
      else {
        request.log.error({ err: error, omitted }, 'a request failed');
        [nextLineMs, omitted] = [nowMs() + UNAVAILABLE_EVERY_MS, 0];
      }
    }
    return sendError(reply, shown);
  };
}
const UNAVAILABLE_EVERY_MS = 1000;
export type ErrorHandler = (
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
) => FastifyReply;

export function sendError(reply: FastifyReply, error: ApiError): FastifyReply {
  // Said here too: what the router refuses passes no hook.
  void reply.header('X-Request-Id', reply.request.id).header('X-Content-Type-Options', 'nosniff');
  // The console asks for a key itself; a browser would at this header.
  if (error.code === 'UNAUTHORIZED' && reply.request.headers[CONSOLE_HEADER] === undefined)
    void reply.header('WWW-Authenticate', 'Bearer, Basic');
  if (error.code === 'UNAVAILABLE') void reply.header('Retry-After', '1');
  if (error.code === 'RATE_LIMITED' && !reply.hasHeader('Retry-After'))
    void reply.header('Retry-After', '60');
  return reply
    .code(ERROR_STATUS[error.code])
    .type('application/json')
    .serializer(JSON.stringify)
    .send(errorBody(error, reply.request.id));
}

export function errorBody(error: ApiError, requestId: string) {
  return {
    code: error.code,
    message: error.message,
    ...(error.details === undefined ? {} : { details: error.details }),
    request_id: requestId,
  };
}

function translate(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof RegionNotServed) return new ApiError('UNAVAILABLE', error.message);
  if (error instanceof ClientLeft) return new ApiError('INVALID_REQUEST', error.message);
  if (!(error instanceof Error)) return internal();
  if (isFastifyError(error)) {
    if (error.validation !== undefined)
      return new ApiError(
        'INVALID_REQUEST',
        explainValidation(error.validation, error.validationContext ?? 'body'),
      );
    const refused = REFUSALS[error.code];
    if (refused !== undefined) return new ApiError(...refused);
    if (error.statusCode === 400)
      return new ApiError('INVALID_REQUEST', `the body is not JSON: ${error.message}`);
  }
  if (error instanceof SyntaxError)
    return new ApiError('INVALID_REQUEST', `the body is not JSON: ${error.message}`);
  if (isConnectionLoss(error))
    return new ApiError(
      'UNAVAILABLE',
      'the control plane cannot reach its metadata database at the moment; try again in a moment',
    );
  if (isDiskFull(error))
    return new ApiError(
      'UNAVAILABLE',
      'the disk is full, and the metadata database has no space to write: ' +
        'remove files from that disk, then try again; howdah doctor shows which disk it is',
    );
  return internal();
}

const internal = (): ApiError =>
  new ApiError(
    'INTERNAL',
    'something went wrong in the control plane; its log holds the reason under this request id',
  );

/** The refusals of Fastify before a handler runs, by its error code. */
const REFUSALS: Partial<Record<string, [ErrorCode, string]>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: ['PAYLOAD_TOO_LARGE', 'the body is larger than 64 KiB, the maximum'],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [
    'UNSUPPORTED_MEDIA_TYPE',
    'Content-Type: a body must be sent as application/json',
  ],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: [
    'INVALID_REQUEST',
    'Content-Length: is not the length of the body',
  ],
  FST_ERR_BAD_URL: [
    'INVALID_REQUEST',
    'the path is not valid: percent signs must begin an escape of UTF-8',
  ],
  FST_ERR_MAX_PARAM_LENGTH: ['NOT_FOUND', 'no such path: one of its parts is too long'],
};

function isFastifyError(error: Error): error is FastifyError {
  return 'code' in error && typeof error.code === 'string' && error.code.startsWith('FST_');
}

/** The texts of the driver for a broken connection, where it has no code for it. */
const BROKEN_CONNECTION = [
  /Connection terminated/,
  /connection error and is not queryable/,
  /Client was closed/,
  /timeout exceeded when trying to connect/,
];

/**
 * SQLSTATE classes 08 and 57P0x, a statement or transaction that took too long (57014, 25P03), no
 * connection left (53300), what the operating system says of a socket that nobody answers, and what
 * the driver says.
 */
function isConnectionLoss(error: Error): boolean {
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  return (
    /^(08|57P0|57014|25P03|53300)/.test(code) ||
    ['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE'].includes(code) ||
    BROKEN_CONNECTION.some((text) => text.test(error.message))
  );
}

/** SQLSTATE disk_full. */
const isDiskFull = (error: Error): boolean => 'code' in error && error.code === '53100';

/** A refused body or query in words: the field, what was found, what is allowed. */
export function explainValidation(problems: readonly ValidationProblem[], context: string): string {
  // A failed choice between shapes is reported as a whole; its parts would only confuse.
  const problem = problems.find(({ keyword }) => keyword === 'anyOf') ?? problems[0];
  if (problem === undefined) return `the ${context} is not valid`;
  const path = problem.instancePath.slice(1).replaceAll('/', '.');
  const field = path === '' ? `the ${context}` : path;
  const inside = (name: unknown) => (path === '' ? String(name) : `${path}.${String(name)}`);
  const { params } = problem;
  if (problem.keyword === 'required')
    return `${inside(params['missingProperty'])}: missing; the ${context} must have it`;
  if (problem.keyword === 'additionalProperties')
    return (
      `${inside(params['additionalProperty'])}: no such field; allowed: ` +
      Object.keys(problem.parentSchema?.properties ?? {}).join(', ')
    );
  if (problem.keyword === 'type' && (problem.data === undefined || problem.data === null))
    return `${field}: missing; expected a JSON ${String(params['type'])}`;
  // Secrets are not repeated in answers.
  const found = /password|^key$/.test(path) ? '' : `found ${sizeOrValue(problem)}`;
  const { description } = problem.parentSchema ?? {};
  const about = typeof description === 'string' ? description : '';
  const allowed = allowedBy(problem);
  // The description says it already where it gives the range: "1 to 128 characters".
  const isSaid = COUNTED[problem.keyword] !== undefined && /\d to \d/.test(about);
  const rule =
    allowed === '' || isSaid
      ? about === ''
        ? 'not valid'
        : `allowed: ${about}`
      : `${allowed}${about === '' ? '' : ` (${about})`}`;
  return `${field}: ${[found, rule].filter((part) => part !== '').join('; ')}`;
}

/** The unit that a limit on a length counts. */
const COUNTED: Partial<Record<string, string>> = {
  minLength: 'characters',
  maxLength: 'characters',
  minItems: 'entries',
  maxItems: 'entries',
  minProperties: 'fields',
  maxProperties: 'fields',
};

/** The value that was found; its length where that is what is wrong. */
function sizeOrValue({ keyword, data }: ValidationProblem): string {
  const counted = COUNTED[keyword];
  if (counted === undefined || typeof data !== 'object' || data === null)
    return counted !== undefined && typeof data === 'string'
      ? `${[...data].length} ${counted}`
      : inQuotes(data);
  return `${Object.keys(data).length} ${counted}`;
}

/** The values that a rule of JSON Schema allows, in words; empty: see its description. */
function allowedBy({ keyword, params }: ValidationProblem): string {
  const limit = String(params['limit']);
  switch (keyword) {
    case 'pattern':
      return params['pattern'] === VISIBLE_PATTERN
        ? 'allowed is visible text, without control characters and other invisible ones'
        : '';
    case 'enum':
      return (
        'allowed: ' +
        (Array.isArray(params['allowedValues']) ? params['allowedValues'].join(', ') : '')
      );
    case 'type':
      return `expected ${String(params['type'])}`;
    case 'format':
      return params['format'] === 'date-time'
        ? 'expected a date-time with an offset, like 2026-01-31T12:00:00Z'
        : `expected: ${String(params['format'])}`;
    case 'minimum':
    case 'minLength':
    case 'minItems':
    case 'minProperties':
      return `the minimum is ${limit}`;
    case 'maximum':
    case 'maxLength':
    case 'maxItems':
    case 'maxProperties':
      return `the maximum is ${limit}`;
    case 'multipleOf':
      return `allowed are multiples of ${String(params['multipleOf'])}`;
    case 'uniqueItems':
      return 'no entry may be repeated';
    default:
      return '';
  }
}

// How often wrong keys came from each address within a minute.

const WINDOW_MS = 60_000;
/** At most this many addresses are counted: beyond it all counts begin again. */
const MOST_ADDRESSES = 100_000;

export function createFailures(mostPerMinute: number, now: () => number = () => performance.now()) {
  let counts = new Map<string, number>();
  let beganMs = now();

  return {
    /** Notes a wrong key. @returns false when there were too many from that address */
    note: (address: string): boolean => {
      if (now() - beganMs >= WINDOW_MS || counts.size >= MOST_ADDRESSES) {
        counts = new Map();
        beganMs = now();
      }
      const whose = sourceOf(address);
      const count = (counts.get(whose) ?? 0) + 1;
      counts.set(whose, count);
      return count <= mostPerMinute;
    },
  };
}

/** Whom an address belongs to: of IPv6 everybody has a network of 64 bits. */
export function sourceOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !isIPv6(address)) return mapped ?? address;
  const [head = '', tail = ''] = address.split('::');
  const groups = head.split(':').filter((group) => group !== '');
  const rest = address.includes('::') ? tail.split(':').filter((group) => group !== '') : [];
  const zeros = Array.from({ length: Math.max(0, 8 - groups.length - rest.length) }, () => '0');
  return [...groups, ...zeros, ...rest].slice(0, 4).join(':');
}

// Requests that the HTTP server itself refuses: there is none yet that Fastify could answer.

/** The most bytes of all headers of a request. */
export const HEADER_BYTES = 8 * 1024;

type ConnectionError = Error & { code?: string; rawPacket?: unknown };
type Refusal = { status: string; code: ErrorCode; message: string; headers?: string };

/**
 * Answers a request that is not HTTP, too slow, too large in its headers, or has an unknown method.
 */
export function answerBrokenRequest(error: ConnectionError, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  refuse(socket, refusalOf(error));
}

/** Refuses CONNECT, for which Node has no request either. */
export function refuseTunnel(socket: Duplex): void {
  refuse(socket, UNKNOWN_METHOD);
}

const UNKNOWN_METHOD: Refusal = {
  status: '405 Method Not Allowed',
  code: 'METHOD_NOT_ALLOWED',
  message: 'no path has this method; allowed: GET, HEAD, POST, PUT, PATCH, DELETE, by the path',
  headers: 'Allow: GET, HEAD, POST, PUT, PATCH, DELETE\r\n',
};

/** A request line with a method that Node does not know, such as QUERY in older versions. */
const REQUEST_LINE = /^[A-Z][A-Z0-9-]{0,31} \S{1,2048} HTTP\/1\.[01]\r?\n/;

function refusalOf({ code, rawPacket }: ConnectionError): Refusal {
  const isRequest =
    Buffer.isBuffer(rawPacket) && REQUEST_LINE.test(rawPacket.toString('latin1', 0, 4096));
  if (code === 'HPE_INVALID_METHOD' && isRequest) return UNKNOWN_METHOD;
  if (code === 'HPE_HEADER_OVERFLOW')
    return {
      status: '431 Request Header Fields Too Large',
      code: 'INVALID_REQUEST',
      message: `the headers are larger than ${HEADER_BYTES / 1024} KiB, the maximum`,
    };
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return {
      status: '408 Request Timeout',
      code: 'INVALID_REQUEST',
      message: 'the request was not complete in time: headers within 10 s, all of it within 30 s',
    };
  return {
    status: '400 Bad Request',
    code: 'INVALID_REQUEST',
    message: 'this is not a valid HTTP request',
  };
}

function refuse(socket: Duplex, { status, code, message, headers = '' }: Refusal): void {
  const body = JSON.stringify(errorBody(new ApiError(code, message), randomUUID()));
  socket.end(
    `HTTP/1.1 ${status}\r\n${headers}Content-Type: application/json\r\n` +
      'X-Content-Type-Options: nosniff\r\n' +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}
