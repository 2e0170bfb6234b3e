/**
 * A request that the OpenAPI document allows is not refused as wrong: bodies and parameters of
 * every operation are made from the document. Rules that a schema cannot say are listed with their
 * reasons. The requests are the same in every run; SEED=… and REQUESTS=… make others, and more.
 */
import * as fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { valid } from './arbitraries.ts';
import { ROUTES, type Route } from './document.ts';
import { install, type Installation } from './harness.ts';

const SEED = Number(process.env['SEED'] ?? 39);
const REQUESTS = Number(process.env['REQUESTS'] ?? 20);

let cloud: Installation;
let ids: Record<string, string>;
beforeAll(async () => {
  process.stdout.write(`requests: SEED=${SEED}\n`);
  cloud = await install({ HOWDAH_SPARES: '0', HOWDAH_FAILED_KEYS_PER_MINUTE: '1000000' });
  const { service_id: id } = await cloud.create({ name: 'target', service_type: 'POSTGRES' });
  ids = { project_id: cloud.projectId, service_id: id };
});
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

/** Rules that a schema cannot say, by the message of their refusal. */
const EXPLAINED: readonly RegExp[] = [
  // Sizes are pairs.
  /allowed pairs cpu_millis\/memory_gbs/,
  /^sync_replica_count: found [0-9] of [0-9] replicas/,
  // Times and networks are compared with others.
  /allowed: a moment in the future/,
  /^from: .* is not before to/,
  /^bucket_seconds: found .* points/,
  /has bits set beyond the network/,
  // Two fields belong together, or exclude each other.
  /^redirect_uri, code_challenge: /,
  /^ttl_seconds, expires_at: /,
  /^purge_on_expiry: found true, for a service that does not expire/,
  /^service_ttl_seconds: found \d+, which is more than/,
  /^max_service_ttl_seconds, max_services: found for an admin key/,
  /a repository of the type \w+ (has|needs)/,
  /^pg_version: /,
  /^last_port: found [0-9]+, below/,
  /: both missing; send at least one of them/,
  /^service_id: .* are those of the region/,
  /^image_pull_secret: expected the config\.json/,
  /^placement: expected that of the service/,
  /^config\.(url|password|username|bearer_token): (missing|found beside|found a colon)/,
  /^threshold: found/,
  /^domain: its services are at port/,
  /^images: the tag of the image of PostgreSQL/,
  /^extensions: PostgreSQL [0-9]+ has no image/,
  /: the type \w+ (takes|needs)/,
  /^config\.include_pg_metrics: found/,
  /^service_type: found .*, but addons/,
  /^target_time: (found with the strategy|found null; PITR takes|.* is outside the window)/,
  /^region_code: the service is in the region/,
  // The values are those of this installation, or of an earlier answer.
  /^cursor: not one that an earlier page handed out/,
  /^node: found .*, the members of a service/,
  /^directory: found/,
  /^quiet_hours\.time_zone: found/,
  // Names are resolved, and private networks are not reached.
  /an address of this machine or a private network/,
  /cannot be resolved|does not resolve|no address/,
  /^sql: /,
];

/** Codes of regions are like ids: one that exists is needed to get further. */
const inRegion = (made: unknown): unknown =>
  JSON.parse(JSON.stringify(made), (name, value: unknown) =>
    name === 'region_code' ? 'local' : value,
  );

/** A value of a parameter, as it is written in an address. */
const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : JSON.stringify(value);

/** The requests of an operation, all of which the document allows. */
function requestsOf({ path, query, body, changes, ending }: Route) {
  const required = query.filter((one) => one.required === true).map(({ name }) => name);
  const free = query.filter(({ name }) => !['dry_run', 'confirm', 'follow'].includes(name));
  const parameters = fc.record(
    Object.fromEntries(free.map((one) => [one.name, valid(one.schema)])),
    {
      requiredKeys: required,
    },
  );
  const bodies = body === null ? fc.constant(undefined) : valid(body);
  return fc.tuple(parameters, bodies).map(([given, made]) => {
    const words = Object.entries(Object(inRegion(given))).flatMap(([name, value]) =>
      [value].flat().map((one) => `${name}=${encodeURIComponent(textOf(one))}`),
    );
    if (changes) words.push('dry_run=true');
    if (ending !== '') words.push(ending);
    const place = path.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => ids[name] ?? 'nosuchidxx');
    return {
      place: words.length === 0 ? place : `${place}?${words.join('&')}`,
      body: made === undefined ? made : inRegion(made),
    };
  });
}

async function refusalOf(route: Route, place: string, body: unknown): Promise<string | null> {
  const response = await fetch(`${cloud.apiUrl}${place}`, {
    method: route.method,
    headers: {
      Authorization: `Bearer ${cloud.key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (response.status < 400) return null;
  const { code, message }: { code?: unknown; message?: unknown } = Object(JSON.parse(text));
  const isWrong = code === 'INVALID_REQUEST' || response.status >= 500;
  if (!isWrong || EXPLAINED.some((rule) => rule.test(String(message)))) return null;
  return `${route.operationId} ${place} ${JSON.stringify(body)}: ${String(message)}`;
}

test.each(ROUTES)('$operationId takes what the document allows', async (route) => {
  const found: string[] = [];
  for (const { place, body } of fc.sample(requestsOf(route), { numRuns: REQUESTS, seed: SEED }))
    found.push(...[(await refusalOf(route, place, body)) ?? []].flat());
  expect(found.slice(0, 3), `SEED=${SEED}`).toEqual([]);
});
