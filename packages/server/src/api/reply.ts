import type { FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';

/** Sends a document that is JSON text already, as the metadata database keeps it. */
export function sendText(reply: FastifyReply, status: number, json: string): FastifyReply {
  return reply.code(status).type('application/json').serializer(asIs).send(json);
}

/** Sends text as it comes, no faster than it is read. */
export function sendStream(reply: FastifyReply, type: string, stream: Readable): FastifyReply {
  return reply.type(type).send(stream);
}

/** Answers without a body: `send(null)` would say `null` in JSON. */
export function sendNothing(reply: FastifyReply, status: number): FastifyReply {
  return reply.code(status).send();
}

/** Names the operation that an accepted change is. */
export function nameOperation(reply: FastifyReply, operationId: string | null): void {
  if (operationId !== null) void reply.header('Operation-Id', operationId);
}

/** Aborted when the client leaves before it is answered: work for nobody must not go on. */
export function clientOf(reply: FastifyReply): AbortSignal {
  const client = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) client.abort(new ClientLeft());
  });
  return client.signal;
}

/** Why work for a client that has left ended; nobody reads the answer. */
export class ClientLeft extends Error {
  constructor() {
    super('the client left before it was answered');
  }
}

const asIs = (text: unknown): string => String(text);
