import { ERROR_CODES, ERROR_STATUS, ErrorBody, Ref } from '@howdah/contract';
import type { FastifyReply } from 'fastify';

/** Sends a document that is JSON text already, as the store keeps it. */
export function sendText(reply: FastifyReply, status: number, json: string): FastifyReply {
  return reply.code(status).type('application/json').serializer(asIs).send(json);
}

/** Answers without a body: `send(null)` would say `null` in JSON. */
export function sendNothing(reply: FastifyReply, status: number): FastifyReply {
  return reply.code(status).send();
}

/** Names the operation that an accepted change is. */
export function nameOperation(reply: FastifyReply, operationId: string | null): void {
  if (operationId !== null) void reply.header('Operation-Id', operationId);
}

const asIs = (text: unknown): string => String(text);

/** The answers of a route in the OpenAPI document: its own, and those that every route with a key can give. */
export function answers<T extends Record<number, unknown>>(own: T, ...more: number[]): T {
  const errors = [400, 401, 403, 404, 405, 413, 415, 500, 503, ...more].map(
    (status) => [status, { description: describe(status), ...Ref(ErrorBody) }] as const,
  );
  return { ...Object.fromEntries(errors), ...own };
}

function describe(status: number): string {
  return ERROR_CODES.filter((code) => ERROR_STATUS[code] === status).join(', ');
}
