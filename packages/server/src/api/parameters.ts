/**
 * Query parameters. A misspelled one is refused: `?Dry_run=true` would make the change otherwise.
 */
import {
  ApiError,
  inQuotes,
  MAX_NODES,
  MAX_REPLICAS,
  nearestName,
  permissionOf,
  whyNotJson,
} from '@howdah/contract';
import type { FastifyRequest } from 'fastify';
import { parseMoment } from '../lib/moment.ts';
import type { ServiceDoc } from '../store/service-documents.ts';

/** Refuses parameters that neither the route's schema nor every change has. */
export async function refuseUnknownParameters({
  method,
  query,
  routeOptions,
}: FastifyRequest): Promise<void> {
  const { schema, url } = routeOptions;
  // A client that makes dry runs only sends the parameter with each POST, reads included.
  const changes = permissionOf(schema?.operationId)?.changes === true;
  const takesDryRun = changes || (method === 'POST' && url?.includes(':service_id') === true);
  const known = [
    ...propertiesOf(schema?.querystring),
    ...(takesDryRun ? ['dry_run'] : []),
    ...(changes && takesName(url) ? ['confirm'] : []),
    ...(hasBody(method) ? ['strict'] : []),
  ];
  for (const name of Object.keys(Object(query))) {
    if (known.includes(name)) continue;
    const nearest = nearestName(name, known);
    const allowed =
      nearest === null
        ? 'this call takes none'
        : `did you mean ${nearest}? Allowed: ${known.join(', ')}`;
    throw new ApiError('INVALID_REQUEST', `${inQuotes(name)}: no such query parameter; ${allowed}`);
  }
  const why = whyNotJson(query);
  if (why !== null) throw new ApiError('INVALID_REQUEST', `the query: ${why}`);
}

/** Whether a call is about a service, whose name can be repeated to confirm the change. */
export function takesName(url: string | undefined): boolean {
  return url?.includes(':service_id') === true;
}

/** Whether calls of a method have a body, whose unknown fields `?strict=true` refuses. */
export function hasBody(method: string): boolean {
  return ['POST', 'PUT', 'PATCH'].includes(method);
}

function propertiesOf(schema: unknown): string[] {
  return typeof schema === 'object' && schema !== null && 'properties' in schema
    ? Object.keys(Object(schema.properties))
    : [];
}

/**
 * The number of a member, or of a node of a read replica set; null: the primary, or the first node.
 */
export function nodeParameter(
  node: string | undefined,
  { parent_id: parent }: ServiceDoc,
): number | null {
  if (node === undefined || node === '') return null;
  const [least, most, whose] =
    parent === null
      ? [0, MAX_REPLICAS, 'the members of a service']
      : [1, MAX_NODES, 'the nodes of a read replica set'];
  const n = /^[0-9]{1,2}$/.test(node) ? Number(node) : most + 1;
  if (n < least || n > most)
    throw new ApiError(
      'INVALID_REQUEST',
      `node: found ${JSON.stringify(node)}; allowed: ${least} to ${most}, ${whose}`,
    );
  return n;
}

/** A parameter that is a date-time, in milliseconds; null: it is missing or empty. */
export function momentParameter(name: string, text: string | undefined): number | null {
  if (text === undefined || text === '') return null;
  const moment = parseMoment(text);
  if (moment === null) {
    throw new ApiError(
      'INVALID_REQUEST',
      `${name}: found ${JSON.stringify(text.slice(0, 64))}; ` +
        'expected a date-time like 2026-01-31T12:00:00Z',
    );
  }
  return moment.ms;
}
