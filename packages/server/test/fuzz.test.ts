/**
 * The API under calls that are made from its own document, good and bad by construction, and in
 * chains. No answer is a fault of ours, and each is one that the document promises. SEED=… and
 * CALLS=… repeat and lengthen it.
 */
import * as fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { invalid, valid } from './arbitraries.ts';
import { ajv, problemOf, ROUTES, type Route } from './document.ts';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { atMoment, until } from './until.ts';

const SEED = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
const CALLS = Number(process.env['CALLS'] ?? 20_000);
/** The default run makes fewer: each route four times. */
const SAMPLE = 4 * ROUTES.length;
const AT_A_TIME = 16;
/** As many good answers as this part of the routes must be seen. */
const GOOD_PART = 0.4;
/** How often the number of calls may be made until then. */
const LONGEST = 4;
/** Services that live through a chain: each is a server. */
const CHAINS = 4;
const CHAIN_USES = 12;
/** The most bodies made for each operation, of either kind. */
const BODIES = 150;

let cloud: Installation;
let service: Service;
beforeAll(async () => {
  process.stdout.write(`fuzz: SEED=${SEED}\n`);
  cloud = await install({ HOWDAH_FAILED_KEYS_PER_MINUTE: '1000000' });
  service = await cloud.create({ name: 'target', service_type: 'POSTGRES' });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

/** Numbers from 0 to 1 by a seed (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Call = {
  route: Route;
  path: string;
  body: unknown;
  headers: Record<string, string>;
  isBad: boolean;
};
type Seen = { status: number; text: string };

const problems: string[] = [];
const answers = new Map<string, number>();
const goodAnswers = (): number => [...answers.keys()].filter((name) => / 2\d\d$/.test(name)).length;

async function make({ route, path, body, headers }: Call): Promise<Seen> {
  const json = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method: route.method,
    headers: {
      Authorization: `Bearer ${cloud.key}`,
      ...(json === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(json === undefined ? {} : { body: json }),
  });
  const text = await response.text();
  const what = `${route.method} ${path} ${JSON.stringify(headers)} ${json?.slice(0, 300) ?? ''}`;
  if (response.status >= 500)
    problems.push(`${response.status} for ${what}: ${text.slice(0, 300)}`);
  const problem = problemOf(route, response.status, text);
  if (problem !== null) problems.push(`${problem} for ${what}`);
  const name = `${route.operationId} ${response.status}`;
  answers.set(name, (answers.get(name) ?? 0) + 1);
  return { status: response.status, text };
}

type Bodies = ReadonlyMap<string, { good: unknown[]; bad: unknown[] }>;

/** Bodies of operations, made once: making one costs more than calling with it. */
function bodiesOf(seed: number, calls: number): Bodies {
  const numRuns = Math.min(BODIES, Math.ceil((2 * calls) / ROUTES.length));
  return new Map(
    ROUTES.flatMap(({ operationId, body }) => {
      if (body === null) return [];
      const good = fc.sample(valid(body), { numRuns, seed });
      const check = ajv.compile(
        typeof body['$ref'] === 'string' ? { $ref: `api${body['$ref']}` } : body,
      );
      for (const made of good)
        if (!check(JSON.parse(JSON.stringify(made))))
          throw new Error(`${operationId}: made a bad body: ${JSON.stringify(made)}`);
      return [[operationId, { good, bad: fc.sample(invalid(body), { numRuns, seed }) }]];
    }),
  );
}

const BAD_IDS = [
  'nosuchidxx',
  'x',
  '%00',
  '..%2f..',
  '%F0%9F%90%98',
  "'%20or%20''='",
  'a'.repeat(300),
  '-1',
  'null',
  '__proto__',
];
const BAD_HEADERS: Record<string, string>[] = [
  { 'Idempotency-Key': '' },
  { 'Idempotency-Key': 'x'.repeat(300) },
  { Accept: 'text/xml' },
  { 'X-Forwarded-For': 'x' },
  { Range: 'bytes=0-1' },
];

/** Calls without end. The good ones are dry runs, so that nothing is made; the bad ones are not. */
function* callsOf(seed: number, ids: Record<string, string>, bodies: Bodies): Generator<Call> {
  const random = randomNumbers(seed);
  const pick = <T>(from: readonly T[]): T => {
    const found = from[Math.floor(random() * from.length)];
    if (found === undefined) throw new Error('nothing to pick from');
    return found;
  };
  const strings = fc.sample(
    fc.oneof(
      fc.string(),
      fc.string({ unit: 'binary' }),
      fc.constantFrom('2026-01-01T00:00:00Z', '0', '1', '-1', '', 'true'),
    ),
    { numRuns: 500, seed },
  );
  /** All routes, so that a run reaches each of them whatever its seed. */
  const shuffled = (): Route[] =>
    ROUTES.map((route) => ({ route, place: random() }))
      .toSorted((one, other) => one.place - other.place)
      .map(({ route }) => route);
  const callOf = (route: Route): Call => {
    const badIds = random() < 0.25;
    const made = bodies.get(route.operationId);
    const badBody = made !== undefined && random() < 0.6;
    const body = made === undefined ? undefined : pick(badBody ? made.bad : made.good);
    const query = route.query.flatMap(({ name }) =>
      name === 'dry_run' || route.ending.startsWith(name) || random() < 0.5
        ? []
        : [`${name}=${encodeURIComponent(pick(strings))}`],
    );
    if (route.changes && !badBody && !badIds) query.push('dry_run=true');
    const path = route.path.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) =>
      name !== 'project_id' && badIds
        ? pick(BAD_IDS)
        : name === 'project_id' && random() < 0.02
          ? pick(BAD_IDS)
          : (ids[name] ?? 'nosuchidxx'),
    );
    // Without an id that could be bad, and with a good body, it would make something.
    const earnest =
      route.changes && !badBody && badIds && route.names.every((name) => name === 'project_id');
    if (earnest) query.push('dry_run=true');
    if (route.ending !== '') query.push(route.ending);
    const headers =
      random() < 0.1
        ? pick(BAD_HEADERS)
        : random() < 0.1
          ? { 'Idempotency-Key': `k${Math.floor(random() * 50)}` }
          : {};
    return {
      route,
      path: query.length === 0 ? path : `${path}?${query.join('&')}`,
      body,
      headers,
      isBad: badBody,
    };
  };
  for (;;) for (const route of shuffled()) yield callOf(route);
}

/** A service's life: made, used in any order, deleted, and used again. */
async function chain(seed: number, bodies: Bodies): Promise<void> {
  const random = randomNumbers(seed);
  const routeOf = (operationId: string): Route => {
    const route = ROUTES.find((candidate) => candidate.operationId === operationId);
    if (route === undefined) throw new Error(`no operation ${operationId}`);
    return route;
  };
  const use = (route: Route, id: string): Promise<Seen> => {
    const good = bodies.get(route.operationId)?.good ?? [undefined];
    const body = good[Math.floor(random() * good.length)];
    return make({
      route,
      path: route.path.replace('{project_id}', cloud.projectId).replace('{service_id}', id),
      body,
      headers: {},
      isBad: false,
    });
  };
  const create = routeOf('createService');
  const createdService = await make({
    route: create,
    path: `/projects/${cloud.projectId}/services`,
    body: { name: `chain ${seed}`, service_type: 'POSTGRES' },
    headers: {},
    isBad: false,
  });
  expect(createdService.status, createdService.text).toBe(202);
  const id = String(Reflect.get(JSON.parse(createdService.text), 'service_id'));
  // Forks would be servers of their own, replicas too, and a drill takes its time.
  const uses = ROUTES.filter(
    ({ operationId, names }) =>
      names.join() === 'project_id,service_id' &&
      ![
        'deleteService',
        'forkService',
        'setHA',
        'drill',
        'switchover',
        'verifyBackup',
        'createReplicaSet',
      ].includes(operationId),
  );
  for (let step = 0; step < CHAIN_USES; step++) {
    const route = uses[Math.floor(random() * uses.length)];
    if (route !== undefined) await use(route, id);
    await atMoment(random() * 300);
  }
  expect((await use(routeOf('deleteService'), id)).status).toBe(202);
  for (const route of uses) if (route.operationId !== 'restoreService') await use(route, id);
  await until(
    'the service is deleted',
    async () => (await use(routeOf('getService'), id)).status === 404,
  );
  for (const route of uses)
    if (route.operationId !== 'restoreService')
      expect((await use(route, id)).status, route.operationId).toBe(404);
}

async function fuzz(count: number, seed: number, cidr: string): Promise<void> {
  const [operation] = await cloud.operations(service.service_id);
  const idOf = async (path: string, made: object) =>
    String(Reflect.get(Object((await cloud.request('POST', path, made)).body), 'id'));
  const vpc = await idOf('/vpcs', { name: 'target', cidr, region_code: 'local' });
  const ids = {
    project_id: cloud.projectId,
    service_id: service.service_id,
    operation_id: operation?.id ?? '',
    public_key: cloud.key.split(':')[0] ?? '',
    vpc_id: vpc,
    peering_id: await idOf(`/vpcs/${vpc}/peerings`, {
      peer_account_id: 'nobody',
      peer_region_code: 'local',
      peer_vpc_id: '1',
    }),
  };
  const bodies = bodiesOf(seed, count);
  const calls = callsOf(seed, ids, bodies);
  let made = 0;
  // A seed may have few good calls among its first ones: it goes on then.
  const isEnough = (): boolean =>
    made >= count && (goodAnswers() > GOOD_PART * ROUTES.length || made >= LONGEST * count);
  const worker = async (): Promise<void> => {
    while (!isEnough()) {
      made += 1;
      const { value } = calls.next();
      const { status, text } = await make(value);
      if (value.isBad && status < 400)
        problems.push(
          `${status} for a bad body: ` +
            `${value.route.operationId} ${JSON.stringify(value.body)?.slice(0, 300)}: ` +
            text.slice(0, 200),
        );
    }
  };
  await Promise.all([
    ...Array.from({ length: AT_A_TIME }, worker),
    ...Array.from({ length: CHAINS }, (_, index) => chain(seed + index + 1, bodies)),
  ]);

  expect(problems.slice(0, 20), `SEED=${SEED}`).toEqual([]);
  // All of them were reached, and so were good answers of what can have one: there are no clusters,
  // repositories and other versions of PostgreSQL here.
  const reached = new Set([...answers.keys()].map((name) => name.split(' ')[0] ?? ''));
  expect(
    ROUTES.map(({ operationId }) => operationId).filter((operationId) => !reached.has(operationId)),
  ).toEqual([]);
  expect(goodAnswers()).toBeGreaterThan(GOOD_PART * ROUTES.length);
  // The target is what it was, and nothing was made but by the chains.
  const { body } = await cloud.request('GET', '/services');
  expect(
    Array.isArray(body) ? body.map((one) => Reflect.get(Object(one), 'service_id')) : body,
  ).toEqual([service.service_id]);
  expect((await cloud.get(service.service_id)).name).toBe('target');
}

test(`${SAMPLE} calls: no fault of ours, and every answer as the document has it`, () =>
  fuzz(SAMPLE, SEED, '10.8.0.0/16'));

test(
  `${CALLS} calls: no fault of ours, and every answer as the document has it`,
  { tags: 'slow' },
  () => fuzz(CALLS, SEED + 1000, '10.9.0.0/16'),
);
