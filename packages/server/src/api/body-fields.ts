/**
 * Fields of a body that its call does not know.
 *
 * Clients of Tiger Cloud send fields that we do not have, so they are ignored: the answer names
 * them. A misspelled name is refused: its caller would get something else than they asked for.
 */
import { ApiError, inQuotes, misspelledName, NAMED_SCHEMAS } from '@howdah/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';

declare module 'fastify' {
  interface FastifyRequest {
    /** The paths of the fields of the body that were ignored. */
    ignored?: readonly string[];
  }
}

type Json = Readonly<Record<string, unknown>>;
type Found = { strict: boolean; ignored: string[] };

/**
 * Takes the fields out of a body that the schema of its route does not have.
 *
 * @throws ApiError for a misspelled field; with `?strict=true` for each unknown field
 */
export async function ignoreUnknownFields(request: FastifyRequest): Promise<void> {
  const { body, query, routeOptions } = request;
  const found: Found = { strict: asksToBeStrict(query), ignored: [] };
  // A call without a body of its own knows no field.
  const schema = routeOptions.schema?.body ?? { properties: {} };
  request.body = knownPart(body, schema, '', found);
  request.ignored = found.ignored;
}

/** A value without the unknown fields at any depth; the validation refuses other shapes. */
function knownPart(value: unknown, given: unknown, path: string, found: Found): unknown {
  const schema = resolve(given);
  if (Array.isArray(value))
    return value.map((entry, index) =>
      knownPart(entry, schema['items'], `${path}${index}.`, found),
    );
  const { properties } = schema;
  // A schema that says what it does with unknown fields decides for itself.
  if (!isObject(value) || !isObject(properties) || schema['additionalProperties'] !== undefined)
    return value;
  const known = Object.keys(properties);
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]) => {
      if (known.includes(name))
        return [[name, knownPart(inner, properties[name], `${path}${name}.`, found)]];
      if (found.ignored.length >= MOST_IGNORED) throw tooMany();
      refuse(name, known, path, found.strict);
      found.ignored.push(`${path}${name}`);
      return [];
    }),
  );
}

/** The comparison of each with the known names takes time that other calls wait for. */
const MOST_IGNORED = 100;

const tooMany = (): ApiError =>
  new ApiError(
    'INVALID_REQUEST',
    `the body has more than ${MOST_IGNORED} fields that this call does not know; leave them out`,
  );

function refuse(name: string, known: readonly string[], path: string, strict: boolean): void {
  const meant = misspelledName(name, known);
  if (meant === null && !strict) return;
  const hint = meant === null ? '' : `did you mean ${meant}? `;
  const allowed = known.length === 0 ? 'this call takes no body' : `allowed: ${known.join(', ')}`;
  throw new ApiError(
    'INVALID_REQUEST',
    `${inQuotes(`${path}${name}`).slice(1, -1)}: no such field; ${hint}${allowed}`,
  );
}

function asksToBeStrict(query: unknown): boolean {
  const asked = isObject(query) ? (query['strict'] ?? 'false') : 'false';
  if (asked === 'true' || asked === 'false') return asked === 'true';
  throw new ApiError('INVALID_REQUEST', `strict: found ${inQuotes(asked)}; allowed: true, false`);
}

/** More names than these are counted only: a header has a few KiB. */
const NAMES_IN_HEADER = 10;

/** Names the ignored fields in the header `Warning` of a success, and in `ignored` of an object. */
export async function reportIgnoredFields(
  { ignored = [] }: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
): Promise<unknown> {
  if (ignored.length === 0 || reply.statusCode >= 400) return payload;
  // A header is ASCII, and a quote would end its text.
  const names = ignored
    .slice(0, NAMES_IN_HEADER)
    .map((name) => encodeURIComponent([...name].slice(0, 64).join('')));
  const more = ignored.length - names.length;
  const list = [...names, ...(more > 0 ? [`${more} more`] : [])].join(', ');
  void reply.header('Warning', `299 - "fields that this call does not know were ignored: ${list}"`);
  if (typeof payload !== 'string' || !payload.startsWith('{')) return payload;
  const comma = payload === '{}' ? '' : ',';
  return `${payload.slice(0, -1)}${comma}"ignored":${JSON.stringify(ignored)}}`;
}

const NAMED: ReadonlyMap<string, unknown> = new Map(
  NAMED_SCHEMAS.map((schema) => [`${schema.$id}#`, schema]),
);

function resolve(schema: unknown): Json {
  const named = isObject(schema) && typeof schema['$ref'] === 'string' ? schema['$ref'] : null;
  const resolved = named === null ? schema : NAMED.get(named);
  return isObject(resolved) ? resolved : {};
}

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
