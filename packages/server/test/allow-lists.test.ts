/** Allow lists: who reaches a service, its pooler, gateway, read replica sets and forks. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { createSet, nodeOf, pathOf } from './sets.ts';
import {
  auditEnds,
  destroyService,
  haproxy,
  pgbouncer,
  settled,
  visit,
  type Reachable,
  type ServiceAccess,
} from './vpc.ts';
import { untilExpected } from './until.ts';

/** Every address of 127.0.0.0/8 is one of this machine, and a client can have any of them. */
const [OFFICE, HOME, ELSEWHERE] = ['127.0.7.1', '127.0.8.1', '127.0.0.1'];
const LONG = 60_000;

let cloud: Installation;
beforeAll(async () => {
  cloud = await install(hurried());
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const ask = async (status: number, method: string, path: string, body?: unknown) => {
  const answer = await cloud.request(method, path, body);
  expect(answer, `${method} ${path}`).toMatchObject({ status });
  return answer.body;
};

const textOf = (body: unknown, field: string): string => String(Reflect.get(Object(body), field));

/** Creates a list. @returns its id */
async function listOf(description: string, networks: readonly string[]): Promise<string> {
  const made = await ask(201, 'POST', '/allow-lists', { description, cidr_blocks: networks });
  expect(made).toMatchObject({ project_id: cloud.projectId, description, cidr_blocks: networks });
  return textOf(made, 'allow_list_id');
}

async function attach({ service_id: id }: Service, list: string): Promise<Service> {
  const body = { allow_list_id: list };
  await ask(202, 'POST', `/services/${id}/attachToAllowList`, body);
  return settled(cloud, await cloud.get(id));
}

/** Expects that clients at an address are let in at all endpoints, or at none. */
async function reaches(
  service: ServiceAccess,
  endpoints: readonly Reachable[],
  from: string,
  expected: RegExp,
): Promise<void> {
  for (const endpoint of endpoints)
    await untilExpected(
      `clients at ${from} are ${expected === IN ? 'let in' : 'refused'}`,
      async () =>
        expect(
          (
            await visit(cloud, service, endpoint, {
              from,
              patienceMs: expected === IN ? LONG : 2000,
            })
          ).how,
        ).toMatch(expected),
    );
}
const [IN, REFUSED] = [/^in as/, /^refused/];

test('bad networks are refused with the reason, good ones are kept in one spelling', async () => {
  for (const [networks, why] of [
    [['203.0.113.7/24'], 'the network is 203.0.113.0/24'],
    [['2001:db8::/32', '2001:db8::7/64'], 'cidr_blocks[1]'],
    [['203.0.113.7'], '203.0.113.7/32'],
    [['::ffff:203.0.113.0/120'], 'name the IPv4 network'],
    [[], 'cidr_blocks'],
    [Array.from({ length: 101 }, (_, n) => `10.0.${n}.0/24`), 'cidr_blocks'],
  ] as const) {
    const body = { description: 'bad', cidr_blocks: networks };
    expect(await ask(400, 'POST', '/allow-lists', body)).toMatchObject({
      code: 'INVALID_REQUEST',
      message: expect.stringContaining(why),
    });
  }
  const list = await listOf('many spellings', ['2001:db8::/32']);
  expect(
    await ask(200, 'PATCH', `/allow-lists/${list}`, {
      cidr_blocks: ['2001:DB8:0::/32', '2001:db8::/32', '0.0.0.0/0'],
    }),
  ).toMatchObject({ description: 'many spellings', cidr_blocks: ['2001:db8::/32', '0.0.0.0/0'] });
  await ask(204, 'DELETE', `/allow-lists/${list}`);
  await ask(404, 'GET', `/allow-lists/${list}`);
  await ask(404, 'DELETE', `/allow-lists/${list}`);
});

test('only clients of its networks reach a service, and a changed list ends sessions', async () => {
  const service = await cloud.create({
    name: 'listed',
    service_type: 'POSTGRES',
    enable_pooler: pgbouncer !== null,
  });
  const { service_id: id, endpoint, connection_pooler: pooler } = service;
  const endpoints = [endpoint, ...(pooler === undefined ? [] : [pooler.endpoint])];
  const [stays, goes] = [
    await visit(cloud, service, endpoint, { from: OFFICE, patienceMs: LONG }),
    await visit(cloud, service, endpoint, { from: ELSEWHERE, patienceMs: LONG }),
  ];
  const list = await listOf('office', ['127.0.7.0/24', '2001:db8::/32']);
  expect(await attach(service, list)).toMatchObject({ status: 'READY', allow_list_id: list });
  await goes.ends();
  await reaches(service, endpoints, ELSEWHERE, REFUSED);
  await reaches(service, endpoints, OFFICE, IN);
  expect(stays.goesOn()).toBe(true);
  // The control plane's own statements use another way.
  expect(await ask(200, 'POST', `/services/${id}/query`, { sql: 'select 1' })).toMatchObject({
    row_count: 1,
  });

  const operations = (await cloud.operations(id)).length;
  await ask(200, 'PATCH', `/allow-lists/${list}`, { cidr_blocks: ['127.0.8.0/24'] });
  await stays.ends();
  await reaches(service, endpoints, OFFICE, REFUSED);
  await reaches(service, endpoints, HOME, IN);
  expect(await cloud.operations(id)).toHaveLength(operations);

  // Another list takes its place; a list that it does not have cannot be detached.
  const other = await listOf('other', ['127.0.7.0/24']);
  await attach(service, other);
  await reaches(service, [endpoint], HOME, REFUSED);
  await reaches(service, [endpoint], OFFICE, IN);
  expect(
    await ask(409, 'POST', `/services/${id}/detachFromAllowList`, { allow_list_id: list }),
  ).toMatchObject({ message: expect.stringContaining(other) });
  expect(await ask(409, 'DELETE', `/allow-lists/${other}`)).toMatchObject({
    message: expect.stringContaining(`${id} (listed)`),
  });
  await forkIsAsPrivate(service, other);
  await vpcComesFirst(service);
  await ask(202, 'POST', `/services/${id}/detachFromAllowList`, { allow_list_id: other });
  expect((await settled(cloud, service)).allow_list_id).toBeUndefined();
  await reaches(service, endpoints, ELSEWHERE, IN);
  await ask(409, 'POST', `/services/${id}/detachFromAllowList`, { allow_list_id: other });

  // A deleted service does not keep a list, and comes back paused.
  await attach(service, other);
  await ask(202, 'DELETE', `/services/${id}`);
  await untilExpected('the service is deleted', async () =>
    expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404),
  );
  await ask(204, 'DELETE', `/allow-lists/${other}`);
  await ask(202, 'POST', `/services/${id}/restore`);
  expect(await settled(cloud, service)).toMatchObject({ status: 'PAUSED' });
  await destroyService(cloud, service);
  await ask(204, 'DELETE', `/allow-lists/${list}`);
  await auditEnds(cloud);
});

async function forkIsAsPrivate(service: ServiceAccess, list: string): Promise<void> {
  const path = `/services/${service.service_id}/forkService`;
  const forked = await ask(202, 'POST', path, { fork_strategy: 'NOW', name: 'fork' });
  expect(forked).toMatchObject({ allow_list_id: list });
  const fork = await settled(cloud, await cloud.get(textOf(forked, 'service_id')));
  const access = { ...fork, initial_password: textOf(forked, 'initial_password') };
  await reaches(access, [fork.endpoint], ELSEWHERE, REFUSED);
  await reaches(access, [fork.endpoint], OFFICE, IN);
  await destroyService(cloud, fork);
}

/** In a VPC its networks apply, and the list again after it. */
async function vpcComesFirst({ service_id: id }: Service): Promise<void> {
  const vpc = await ask(201, 'POST', '/vpcs', {
    name: 'first',
    cidr: '10.77.0.0/16',
    region_code: 'local',
  });
  const metadata = await openMetadata(cloud.home);
  const networks = async () =>
    (
      await metadata.db
        .selectFrom('services')
        .select('allowed_networks')
        .where('id', '=', id)
        .executeTakeFirst()
    )?.allowed_networks;
  await ask(202, 'POST', `/services/${id}/attachToVPC`, { vpc_id: textOf(vpc, 'id') });
  await settled(cloud, await cloud.get(id));
  expect(await networks()).toEqual(['10.77.0.0/16']);
  await ask(202, 'POST', `/services/${id}/detachFromVPC`);
  await settled(cloud, await cloud.get(id));
  expect(await networks()).toEqual(['127.0.7.0/24']);
  await metadata.close();
  await ask(204, 'DELETE', `/vpcs/${textOf(vpc, 'id')}`);
}

test.runIf(haproxy !== null)(
  'gateways let in the networks of the list, and keep the sessions of their clients',
  { tags: 'slow' },
  async () => {
    const service = await cloud.create({
      name: 'listed members',
      service_type: 'POSTGRES',
      replica_count: 1,
    });
    const set = await createSet(service, 1, cloud);
    if (pgbouncer !== null) await ask(200, 'POST', pathOf(set, '/enablePooler'));
    const pooler = (await cloud.get(set.id)).connection_pooler?.endpoint;
    const gateways = [service.endpoint, set.endpoint];
    const endpoints = [...gateways, ...(pooler === undefined ? [] : [pooler])];
    const from = (address: string) =>
      Promise.all(
        gateways.map((endpoint) =>
          visit(cloud, service, endpoint, { from: address, patienceMs: LONG }),
        ),
      );
    const [stay, go] = [await from(OFFICE), await from(ELSEWHERE)];
    const node = await nodeOf(set, 1, cloud);
    const list = await listOf('members', ['127.0.7.0/24', '::1/128']);
    await attach(service, list);
    for (const session of go) await session.ends();
    await reaches(service, endpoints, ELSEWHERE, REFUSED);
    await reaches(service, endpoints, OFFICE, IN);
    await ask(202, 'POST', `/services/${service.service_id}/detachFromAllowList`, {
      allow_list_id: list,
    });
    await settled(cloud, service);
    await reaches(service, endpoints, ELSEWHERE, IN);
    for (const session of stay) expect(session.goesOn()).toBe(true);
    expect(await nodeOf(set, 1, cloud)).toEqual(node);
    await destroyService(cloud, service);
    await ask(204, 'DELETE', `/allow-lists/${list}`);
    await auditEnds(cloud);
  },
);
