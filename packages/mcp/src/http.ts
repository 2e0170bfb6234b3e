/**
 * Streamable HTTP on this machine. A request is served with the API key that it carries, and the
 * API alone decides: this process has no key of its own. Web pages of other origins, and host names
 * that point to this address (DNS rebinding), are refused.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { HowdahError, NoAnswerError, type ClientOptions, type HowdahClient } from '@howdah/client';
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  originValidationResponse,
} from '@modelcontextprotocol/server';
import { openCloud } from './cloud.ts';
import { createPasswords } from './passwords.ts';
import { createMcpServer, type ServerOptions } from './server.ts';

/** A running server: its URL, and how to stop it. */
export type HttpFace = { url: string; close: () => Promise<void> };

const HOST = '127.0.0.1';
const PATH = '/mcp';
const MAX_BODY_BYTES = 1024 * 1024;

/**
 * @param api the API, without a key
 * @param port 0: any free port
 * @throws when the port is in use
 */
export async function serveOverHttp(
  api: Omit<ClientOptions, 'key'>,
  options: ServerOptions,
  port: number,
): Promise<HttpFace> {
  const passwords = createPasswords();
  const serve = async (request: Request): Promise<Response> => {
    const refused =
      hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
      originValidationResponse(request, localhostAllowedOrigins());
    if (refused !== undefined) return refused;
    if (new URL(request.url).pathname !== PATH)
      return refusal(404, 'NOT_FOUND', `no such path; the server is at ${PATH}`);
    const key = /^Bearer +([^ ]+) *$/i.exec(request.headers.get('Authorization') ?? '')?.[1];
    if (key === undefined)
      return refusal(
        401,
        'UNAUTHORIZED',
        'Authorization: missing; send "Bearer <public_key>:<secret_key>" ' +
          '(howdah key create makes a key)',
      );
    const cloud = openCloud({ ...api, key }, passwords);
    const invalid = await whyNot(cloud.client);
    if (invalid !== null) return invalid;
    return createMcpHandler(() => createMcpServer(cloud, options)).fetch(request);
  };

  const server = createServer((incoming, outgoing) => {
    const ended = new AbortController();
    outgoing.once('close', () => ended.abort());
    answer(incoming, outgoing, ended.signal, serve).catch(() => outgoing.destroy());
  });
  server.listen(port, HOST);
  await once(server, 'listening');
  const address = server.address();
  const actual = typeof address === 'object' && address !== null ? address.port : port;
  return {
    url: `http://${HOST}:${actual}${PATH}`,
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

/** The answer to a key that the API refuses; null: it accepts the key. */
async function whyNot(client: HowdahClient): Promise<Response | null> {
  try {
    await client.GET('/auth/info');
    return null;
  } catch (error) {
    if (error instanceof NoAnswerError)
      return refusal(503, 'UNAVAILABLE', `${error.message} (howdah status, howdah up)`);
    if (error instanceof HowdahError) return refusal(error.status, error.code, error.message);
    throw error;
  }
}

function refusal(status: number, code: string, message: string): Response {
  return Response.json(
    { code, message },
    { status, headers: status === 401 ? { 'WWW-Authenticate': 'Bearer' } : {} },
  );
}

/** Node's request and response as those of the Fetch API. */
async function answer(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  signal: AbortSignal,
  serve: (request: Request) => Promise<Response>,
): Promise<void> {
  const { method = 'GET', url = '/', headers } = incoming;
  const body = await bodyOf(incoming);
  if (body === null) {
    outgoing.setHeader('Connection', 'close');
    return send(
      outgoing,
      refusal(
        413,
        'PAYLOAD_TOO_LARGE',
        `the body is larger than ${MAX_BODY_BYTES} bytes, the maximum`,
      ),
    );
  }
  // An invalid URL is an unknown path.
  const target = URL.canParse(url, `http://${HOST}`)
    ? new URL(url, `http://${HOST}`)
    : new URL(`http://${HOST}/`);
  const request = new Request(target, {
    method,
    headers: Object.entries(headers).flatMap(([name, value]): [string, string][] =>
      [value ?? []].flat().map((one) => [name, one]),
    ),
    signal,
    ...(body.length === 0 ? {} : { body }),
  });
  await send(outgoing, await serve(request));
}

/** Reads a body to its end, so that its sender receives the answer; null: it is too large. */
async function bodyOf(incoming: IncomingMessage): Promise<Buffer<ArrayBuffer> | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of incoming) {
    const part = Buffer.from(chunk);
    bytes += part.length;
    if (bytes <= MAX_BODY_BYTES) chunks.push(part);
  }
  return bytes > MAX_BODY_BYTES ? null : Buffer.concat(chunks);
}

async function send(outgoing: ServerResponse, response: Response): Promise<void> {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body === null) outgoing.end();
  else await pipeline(Readable.fromWeb(response.body), outgoing);
}
