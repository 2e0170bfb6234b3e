/** Requests that the HTTP server itself refuses: there is none yet that Fastify could answer. */
import { ApiError, type ErrorCode } from '@howdah/contract';
import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { errorBody } from './errors.ts';

/** The most bytes of all headers of a request. */
export const HEADER_BYTES = 8 * 1024;

type ConnectionError = Error & { code?: string; rawPacket?: unknown };
type Refusal = { status: string; code: ErrorCode; message: string; headers?: string };

/** Answers a request that is not HTTP, too slow, too large in its headers, or has an unknown method. */
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
