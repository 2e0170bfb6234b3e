/** Query parameters: a misspelled one must not be ignored, since `?Dry_run=true` would then do what was only asked about. */
import { ApiError, inQuotes, nearestName, permissionOf, whyNotJson } from '@howdah/contract';
import type { FastifyRequest } from 'fastify';

/** Refuses parameters that neither the route's schema nor every change has. */
export async function refuseUnknownParameters({
  method,
  query,
  routeOptions,
}: FastifyRequest): Promise<void> {
  const { schema, url } = routeOptions;
  // A client that only asks what would be done says so with each POST, also where one only reads.
  const changes = permissionOf(schema?.operationId)?.changes === true;
  const takesDryRun = changes || (method === 'POST' && url?.includes(':service_id') === true);
  const known = [...propertiesOf(schema?.querystring), ...(takesDryRun ? ['dry_run'] : [])];
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

function propertiesOf(schema: unknown): string[] {
  return typeof schema === 'object' && schema !== null && 'properties' in schema
    ? Object.keys(Object(schema.properties))
    : [];
}
