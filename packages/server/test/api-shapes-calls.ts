/** Calls that are checked against the OpenAPI document, and what was answered to them. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { expect } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { findPgBackRest, findProgram } from './probe.ts';
import { until, untilExpected } from './until.ts';

export type Body = Record<string, unknown>;

type Records = Awaited<ReturnType<typeof openMetadata>>;

export const pgbouncer = await findProgram('pgbouncer');

export const pgBackRest = await findPgBackRest();

export const haproxy = await findProgram('haproxy');

export let cloud: Installation;

export let metadata: Records;

let validate: (operationId: string, status: number, body: unknown) => void;

/** The operations with the statuses of their answers. */
export const seen = new Set<string>();

/** Every body that came back, but those of create. */
export const bodies: string[] = [];

export const passwords: string[] = [];

type Document = {
  paths: Record<
    string,
    Record<string, { operationId: string; responses: Record<string, { content?: object }> }>
  >;
};

const isDocument = (value: unknown): value is Document =>
  typeof value === 'object' && value !== null && 'paths' in value;

const pointer = (part: string) => part.replaceAll('~', '~0').replaceAll('/', '~1');

export let routes: { method: string; pattern: RegExp; operationId: string }[];

async function loadSchemas() {
  const document: unknown = await (await fetch(`${cloud.apiUrl}/openapi.json`)).json();
  if (!isDocument(document)) throw new Error('no OpenAPI document');
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema(document, 'api');
  routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => ({
      method: method.toUpperCase(),
      pattern: new RegExp(`^${path.replaceAll(/\{[a-z_]+\}/g, '[^/?]+')}(\\?.*)?$`),
      operationId,
    })),
  );
  const places = new Map(
    Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(
        ([method, operation]) => [operation.operationId, { path, method, operation }] as const,
      ),
    ),
  );
  return (operationId: string, status: number, body: unknown): void => {
    const place = places.get(operationId);
    const response = place?.operation.responses[status];
    if (place === undefined || response === undefined)
      throw new Error(`${operationId} is not documented to answer ${status}`);
    if (response.content === undefined) {
      expect(body, `${operationId} ${status} has no body`).toBe('');
      return;
    }
    const check = ajv.compile({
      $ref:
        `api#/paths/${encodeURIComponent(pointer(place.path))}/${place.method}` +
        `/responses/${status}/content/application~1json/schema`,
    });
    expect(
      check(body),
      `${operationId} ${status}: ${JSON.stringify(check.errors)} in ${JSON.stringify(body)}`,
    ).toBe(true);
  };
}

/** Calls whose answer has an initial password. */
const HAVE_PASSWORD = ['createService', 'createServiceFromKit', 'forkService', 'takeLeases'];

/** A call below the base URL, checked against the document. */
export async function callApi(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer & { body: Body }> {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${cloud.key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  const parsed: unknown = text === '' ? '' : JSON.parse(text);
  const route = routes.find(
    (candidate) => candidate.method === method && candidate.pattern.test(path),
  );
  if (route === undefined) throw new Error(`${method} ${path} is not in the document`);
  validate(route.operationId, response.status, parsed);
  if (text !== '') expect(response.headers.get('content-type')).toMatch(/^application\/json\b/);
  expect(response.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  if (response.headers.get('dry-run') === null) seen.add(`${route.operationId} ${response.status}`);
  if (!(HAVE_PASSWORD.includes(route.operationId) && response.ok)) bodies.push(text);
  return {
    status: response.status,
    headers: response.headers,
    body: isBody(parsed) ? parsed : { value: parsed },
  };
}

export const isBody = (value: unknown): value is Body =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A call below the project. */
export const call = (
  method: string,
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
) => callApi(method, `/projects/${cloud.projectId}${path}`, body, headers);

export const operationOf = ({ headers }: Answer): string => headers.get('operation-id') ?? '';

export async function create(
  body: Body,
): Promise<{ id: string; password: string; answer: Answer & { body: Body } }> {
  const answer = await call('POST', '/services', body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(202);
  const password = String(answer.body['initial_password']);
  passwords.push(password);
  return { id: String(answer.body['service_id']), password, answer };
}

/** Polls until a status shows; every status on the way must be one of `through`. */
export async function reach(
  id: string,
  status: Service['status'],
  ...through: Service['status'][]
): Promise<Body> {
  const body = await until(`service ${id} is ${status}`, async () => {
    const seen = (await call('GET', `/services/${id}`)).body;
    return through.some((one) => one === seen['status']) ? null : seen;
  });
  expect(body['status'], `after one of ${through.join()}`).toBe(status);
  return body;
}

export async function remove(id: string): Promise<void> {
  expect((await call('DELETE', `/services/${id}`)).status).toBe(202);
  await untilExpected(`service ${id} is deleted`, async () =>
    expect((await call('GET', `/services/${id}`)).status).toBe(404),
  );
}

export const SERVICE_KEYS =
  'created created_by endpoint ha_replicas metadata metrics name pg_version project_id ' +
  'read_replica_sets region_code resources service_id service_type status';

export const portOf = (body: Body): number => {
  const endpoint = body['endpoint'];
  return isBody(endpoint) ? Number(endpoint['port']) : 0;
};

export async function setUp(): Promise<void> {
  cloud = await install({ HOWDAH_SIMULATED_REGION: 'yes' });
  metadata = await openMetadata(cloud.home);
  validate = await loadSchemas();
}

export async function tearDown(): Promise<void> {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
}
