/** The life of VPCs: what they may be, what they are made of and what is left of them, and services that go in and out. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { followEvents, type Schemas } from '@howdah/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import { createSet, untilSet } from './sets.ts';
import {
  ability,
  allEnded,
  anotherProject,
  attach,
  auditEnds,
  destroyService,
  detach,
  goesWithoutTrace,
  haproxy,
  LONG,
  namespaceOf,
  namespacesOf,
  plug,
  prefixOf,
  settled,
  sh,
  stageNetworks,
  stageRules,
  visit,
  vpcEndpointOf,
  type ServiceAccess,
  SOON,
} from './vpc.ts';
import { has, messageOf, project } from './vpc-calls.ts';

/** All events of the project after one of them. */
async function eventsOf(cloud: Installation, after: string): Promise<Schemas['Event'][]> {
  const found: Schemas['Event'][] = [];
  for await (const event of followEvents({ ...cloud, after, follow: false })) found.push(event);
  return found;
}

describe.runIf(ability.method === 'bridge')('bridge', () => {
  const at = stageNetworks();

  test('the region and the doctor say so', async () => {
    const { cloud, own } = at();
    const regions = await own.answered(200, 'GET', '/regions');
    expect(regions).toMatchObject([
      { vpc: { method: 'bridge', note: expect.stringContaining('bridge') } },
    ]);
    expect((await cloud.cli('doctor')).stdout).toContain('VPCs: bridge');
  });

  test('what a reboot takes away comes back, and a fork stays where its parent is', async () => {
    const { cloud, own } = at();
    const [a, b] = [await own.vpc('10.88.0.0/16'), await own.vpc('10.89.0.0/16')];
    await own.peer(a, cloud.projectId, b.id);
    const service = await cloud.create({ name: 'lasting', service_type: 'POSTGRES', vpc_id: a.id });
    const set = haproxy === null ? null : await createSet(service, 1, cloud);
    const forked = await own.answered(202, 'POST', `/services/${service.service_id}/forkService`, {
      fork_strategy: 'NOW',
    });
    expect(forked).toMatchObject({ vpc_endpoint: { vpc_id: a.id } });
    if (!has(forked, 'service_id', 'initial_password')) throw new Error('no fork');
    const fork: ServiceAccess = {
      ...(await cloud.until(forked.service_id, 'READY')),
      initial_password: forked.initial_password,
    };
    expect(vpcEndpointOf(fork).host).not.toBe(vpcEndpointOf(service).host);
    /** Each is reached from the other side of the peering, and at its public endpoint by nobody. */
    const all = [
      { one: service, ...service, address: '10.89.200.1' },
      { one: fork, ...fork, address: '10.89.200.2' },
      ...(set === null
        ? []
        : [{ one: service, ...(await cloud.get(set.id)), address: '10.89.200.3' }]),
    ];
    const areThere = async () => {
      for (const { one, address, ...place } of all) {
        const { within, remove } = await plug(cloud, b, address);
        await expect
          .poll(
            async () =>
              (await visit(cloud, one, vpcEndpointOf(place), { within, patienceMs: LONG })).how,
            SOON,
          )
          .toMatch(/^in as/);
        await remove();
        expect((await visit(cloud, one, place.endpoint, {})).how).toMatch(/^refused/);
        await cloud.until(place.service_id, 'READY');
      }
    };
    await cloud.stop('SIGKILL');
    for (const name of await namespacesOf(cloud)) await sh('ip', ['netns', 'del', name]);
    await cloud.up();
    for (const { one } of all) await settled(cloud, one);
    await areThere();
    // What somebody took away while it ran.
    for (const [name, words] of [
      [await namespaceOf(cloud, a), ['link', 'del', 'vpc']],
      [await namespaceOf(cloud, b), ['link', 'del', `to-${a.id}`]],
      [await namespaceOf(cloud, a), ['addr', 'flush', 'dev', 'vpc']],
    ] as const) {
      await sh('ip', ['-n', name, ...words]);
      await own.remove(await own.vpc('10.91.0.0/16')); // has all of them looked at
      await areThere();
    }
    await sh('ip', ['netns', 'del', await namespaceOf(cloud, a)]);
    await own.remove(await own.vpc('10.91.0.0/16'));
    await areThere();
    await auditEnds(cloud);
    for (const one of [service, fork]) await destroyService(cloud, one);
    for (const vpc of [a, b]) await goesWithoutTrace(cloud, own, vpc);
  });

  test('addresses are handed out once; a full VPC takes nobody', async () => {
    const { cloud, own } = at();
    const vpc = await own.vpc('10.90.0.0/28');
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        own.call('POST', '/services', {
          name: `many ${n}`,
          service_type: 'POSTGRES',
          cpu_millis: 'shared',
          vpc_id: vpc.id,
        }),
      ),
    );
    const taken = answers.filter(({ status }) => status === 202).map(({ body }) => body);
    const full = answers.filter(({ status }) => status !== 202);
    expect(full.map(({ status }) => status)).toEqual([422, 422]);
    expect(messageOf(full[0] ?? { status: 0, body: {}, headers: new Headers() })).toContain(
      'is full',
    );
    const services = taken.map((body) => (has(body, 'service_id') ? body.service_id : ''));
    const hosts = await Promise.all(
      services.map(async (id) => vpcEndpointOf(await cloud.get(id)).host),
    );
    expect(hosts.toSorted()).toEqual([2, 3, 4, 5, 6, 7].map((n) => `10.90.0.${n}`));
    const [first = ''] = services;
    await cloud.until(first, 'READY');
    expect(messageOf(await own.call('DELETE', `/vpcs/${vpc.id}`))).toContain(first);
    await destroyService(cloud, await cloud.get(first));
    // The one that was given back is free once it has been left for certain.
    const again = await own.call('POST', '/services', {
      name: 'again',
      service_type: 'POSTGRES',
      cpu_millis: 'shared',
      vpc_id: vpc.id,
    });
    expect(again).toMatchObject({
      status: 202,
      body: { vpc_endpoint: { host: hosts[services.indexOf(first)] } },
    });
    const ids = [...services.slice(1), has(again.body, 'service_id') ? again.body.service_id : ''];
    for (const id of ids) await cloud.request('DELETE', `/services/${id}`);
    for (const id of ids)
      await expect
        .poll(async () => (await cloud.request('GET', `/services/${id}`)).status, SOON)
        .toBe(404);
    await own.remove(vpc);
  });

  test('what an installation leaves that is gone is found and said; another one is left alone', async () => {
    const { cloud, own } = at();
    const vpc = await own.vpc('10.91.0.0/16');
    const name = await namespaceOf(cloud, vpc);
    expect(existsSync(`/run/netns/${name}`)).toBe(true);
    const stray = `howdah-${randomBytes(4).toString('hex')}-1000`;
    await sh('ip', ['netns', 'add', stray]);
    try {
      await sh('ip', ['-n', stray, 'link', 'add', 'vpc', 'type', 'bridge']);
      await sh('ip', ['-n', stray, 'link', 'set', 'vpc', 'alias', '/nowhere/data']);
      const { stdout } = await cloud.cli('doctor');
      expect(stdout).toContain(
        `${stray} is of an installation that is gone; its data was in /nowhere/data`,
      );
      expect(stdout).not.toContain(name);
      // One of ours of which no record speaks is found by the audit, and removed when VPCs are next looked at.
      await sh('ip', ['netns', 'add', `${await prefixOf(cloud)}999999`]);
      expect(await cloud.audit()).toContain(
        `network of VPC 999999, of which there is no record: ip netns del ${await prefixOf(cloud)}999999`,
      );
      const outside = await cloud.create({ name: 'outside', service_type: 'POSTGRES' });
      const { port } = outside.endpoint;
      const listener = spawn('ip', [
        'netns',
        'exec',
        name,
        process.execPath,
        '-e',
        `require('node:net').createServer().listen(${port}, '10.91.0.1')`,
      ]);
      try {
        await expect
          .poll(() => cloud.audit(), SOON)
          .toContain(
            `something listens in VPC ${vpc.id} at 10.91.0.1:${port}, a port of service ${outside.service_id}, which is not in there`,
          );
      } finally {
        listener.kill();
      }
      await destroyService(cloud, outside);
      await goesWithoutTrace(cloud, own, vpc);
      await expect
        .poll(() => namespacesOf(cloud), SOON)
        .not.toContain(`${await prefixOf(cloud)}999999`);
      expect(existsSync(`/run/netns/${stray}`)).toBe(true);
    } finally {
      await sh('ip', ['netns', 'del', stray]);
    }
  });
});

describe('address', () => {
  const at = stageRules();

  test('the region says so, and what adds the other way', async () => {
    const { own } = at();
    const regions = await own.answered(200, 'GET', '/regions');
    expect(regions).toMatchObject([
      { vpc: { method: 'address', note: expect.stringContaining('networks of their own take') } },
    ]);
  });

  test('what a VPC may be', async () => {
    const { cloud, own } = at();
    const make = (body: object) =>
      own.call('POST', '/vpcs', { name: 'x', cidr: '10.1.0.0/16', region_code: 'local', ...body });
    for (const [body, part] of [
      [{ cidr: '10.1.0.1/16' }, '10.1.0.0/16'],
      [{ cidr: '8.8.0.0/16' }, 'private'],
      [{ cidr: '10.0.0.0/8' }, '/16 to /28'],
      [{ cidr: 'x' }, 'cidr'],
      [{ region_code: 'mars' }, 'local'],
      [{ name: '' }, 'name'],
      [{ name: 'x'.repeat(129) }, 'name'],
      [{ more: 1 }, 'more'],
    ] as const) {
      const answer = await make(body);
      expect([answer.status, messageOf(answer)]).toEqual([400, expect.stringContaining(part)]);
    }
    const vpc = await own.vpc('10.1.0.0/16', 'first');
    const overlapping = await make({ cidr: '10.1.128.0/17' });
    expect([overlapping.status, messageOf(overlapping)]).toEqual([
      409,
      expect.stringContaining(vpc.id),
    ]);
    expect(vpc).toEqual({
      id: expect.stringMatching(/^[0-9]+$/),
      name: 'first',
      cidr: '10.1.0.0/16',
      region_code: 'local',
    });
    expect(
      await own.answered(200, 'POST', `/vpcs/${vpc.id}/rename`, { name: 'second' }),
    ).toMatchObject({
      ...vpc,
      name: 'second',
      message: expect.any(String),
    });
    expect(await own.answered(200, 'GET', `/vpcs/${vpc.id}`)).toEqual({ ...vpc, name: 'second' });
    expect(await own.answered(200, 'GET', '/vpcs')).toEqual([{ ...vpc, name: 'second' }]);
    const another = await anotherProject(cloud);
    for (const id of [
      vpc.id,
      '1',
      '0',
      'x',
      '99999999999999999999999',
      '%00',
      '1e3',
      '-1',
      '1000.0',
    ])
      for (const path of [`/vpcs/${id}`, `/vpcs/${id}/peerings`, `/vpcs/${id}/peerings/1`])
        expect((await another.project.call('GET', path)).status, path).toBe(404);
    expect((await another.project.call('DELETE', `/vpcs/${vpc.id}`)).status).toBe(404);
    expect((await another.project.call('POST', `/vpcs/${vpc.id}/rename`, 5)).status).toBe(404);
    expect(
      (
        await another.project.call('POST', '/services', {
          name: 'x',
          service_type: 'POSTGRES',
          vpc_id: vpc.id,
        })
      ).status,
    ).toBe(404);
    await own.answered(204, 'DELETE', `/vpcs/${vpc.id}`);
    await own.answered(404, 'GET', `/vpcs/${vpc.id}`);
    // At once: its network is another matter.
    await own.remove(await own.vpc('10.1.0.0/16'));
  });

  test('what becomes of VPCs and peerings is told in order, to those whose they are', async () => {
    const { cloud, own } = at();
    const another = await anotherProject(cloud);
    const hook = await own.answered(201, 'POST', '/webhooks', {
      url: 'http://e.invalid/',
      types: ['vpc.status', 'service.vpc', 'peering.status'],
    });
    const after = (await eventsOf(cloud, '0')).at(-1)?.id ?? '0';
    const [vpc, other] = [
      await own.vpc('10.16.0.0/16', 'told'),
      await another.project.vpc('10.17.0.0/16'),
    ];
    const service = await cloud.create({
      name: 'told of',
      service_type: 'POSTGRES',
      vpc_id: vpc.id,
    });
    await detach(cloud, service);
    await attach(cloud, service, vpc);
    const failed = await own.peer(vpc, cloud.projectId, '1');
    const peering = await own.peer(vpc, another.id, other.id);
    await another.project.peer(other, cloud.projectId, vpc.id);
    await another.project.remove(other);
    await destroyService(cloud, service);
    await own.remove(vpc);
    const told = async (type: string) =>
      (await eventsOf(cloud, after)).filter((event) => event.type === type).map(({ data }) => data);
    await expect
      .poll(async () => (await told('vpc.status')).at(-1), SOON)
      .toEqual({ vpc_id: vpc.id, name: 'told', status: 'deleted' });
    expect((await told('vpc.status')).map(({ status }) => status)).toEqual([
      'created',
      'ready',
      'deleting',
      'deleted',
    ]);
    const operations = (await cloud.operations(service.service_id))
      .toReversed()
      .map(({ id }) => id);
    expect(await told('service.vpc')).toEqual([
      { service_id: service.service_id, vpc_id: vpc.id, operation_id: operations[0] },
      { service_id: service.service_id, from: vpc.id, operation_id: operations[1] },
      { service_id: service.service_id, vpc_id: vpc.id, operation_id: operations[2] },
    ]);
    const of = async (id: string) =>
      (await told('peering.status')).filter((data) => data.peering_id === id);
    const about = { vpc_id: vpc.id, peering_id: failed.id };
    expect(await of(failed.id)).toEqual([
      { ...about, status: 'invalid', error_message: failed.error_message },
      { ...about, from: 'invalid', status: 'deleted' },
    ]);
    expect((await of(peering.id)).map(({ from, status }) => [from, status])).toEqual([
      [undefined, 'pending'],
      ['pending', 'approved'],
      ['approved', 'active'],
      ['active', 'disabled'],
      ['disabled', 'deleted'],
    ]);
    // Nothing of the other project's.
    expect((await eventsOf(cloud, after)).some(({ data }) => data.vpc_id === other.id)).toBe(false);
    if (!has(hook, 'id')) throw new Error('no webhook');
    const deliveries = async () =>
      [await own.answered(200, 'GET', `/webhooks/${hook.id}/deliveries`)].flat();
    await expect.poll(async () => (await deliveries()).length, SOON).toBe(4 + 3 + 2 + 5);
    await own.answered(204, 'DELETE', `/webhooks/${hook.id}`);
  });

  test('attach and detach: what they take, and of a service that is paused', async () => {
    const { cloud, own } = at();
    const vpc = await own.vpc('10.10.0.0/16');
    const service = await cloud.create({ name: 'wanderer', service_type: 'POSTGRES' });
    const path = `/services/${service.service_id}`;
    for (const [body, status] of [
      [{ vpc_id: '1' }, 404],
      [{ vpc_id: 'x' }, 404],
      [{}, 400],
      [{ vpc_id: 5 }, 400],
    ] as const)
      await own.answered(status, 'POST', `${path}/attachToVPC`, body);
    await own.answered(202, 'POST', `${path}/detachFromVPC`, { vpc_id: vpc.id });
    await own.answered(202, 'POST', `${path}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    expect(await attach(cloud, service, vpc)).toMatchObject({
      status: 'PAUSED',
      vpc_endpoint: { vpc_id: vpc.id },
    });
    expect(messageOf(await own.call('DELETE', `/vpcs/${vpc.id}`))).toContain(service.service_id);
    await own.answered(202, 'POST', `${path}/start`);
    await cloud.until(service.service_id, 'READY');
    expect((await visit(cloud, service, service.endpoint, {})).how).toMatch(/^refused/);
    await own.answered(409, 'POST', `${path}/detachFromVPC`, { vpc_id: '1' });
    await own.answered(202, 'POST', `${path}/detachFromVPC`, { vpc_id: vpc.id });
    await settled(cloud, service);
    expect((await visit(cloud, service, service.endpoint, { patienceMs: LONG })).how).toMatch(
      /^in as/,
    );
    expect((await cloud.operations(service.service_id)).map(({ kind }) => kind)).toEqual([
      'detachFromVPC',
      'start',
      'attachToVPC',
      'stop',
      'create',
    ]);
    await destroyService(cloud, service);
    await own.remove(vpc);
  });
});

// ── deleted services ─────────────────────────────────────────────────────────────────────────────────────────────

describe('a deleted service that can be restored', () => {
  let cloud: Installation;
  beforeAll(async () => {
    cloud = await install();
  });
  afterAll(async () => {
    expect(await cloud?.destroy()).toEqual([]);
  });

  test('comes back into its VPC; where that is gone it comes back paused, open to nobody', async () => {
    const own = project(cloud.request);
    const vpc = await own.vpc('10.1.0.0/24');
    const service = await cloud.create({ name: 'ghost', service_type: 'POSTGRES', vpc_id: vpc.id });
    const set = haproxy === null ? null : await createSet(service, 1, cloud);
    const standsWith = async (vpcId: string | undefined) => {
      for (const { status, vpc_endpoint: endpoint } of (await cloud.get(service.service_id))
        .read_replica_sets)
        expect([status, endpoint?.vpc_id]).toEqual(['active', vpcId]);
    };
    await destroyService(cloud, service);
    await own.answered(202, 'POST', `/services/${service.service_id}/restore`);
    expect((await cloud.until(service.service_id, 'READY')).vpc_endpoint).toEqual(
      service.vpc_endpoint,
    );
    if (set !== null) await untilSet(set, 'active', cloud);
    await standsWith(vpc.id);
    await allEnded(cloud);
    await destroyService(cloud, service);
    await own.answered(204, 'DELETE', `/vpcs/${vpc.id}`);
    await own.answered(202, 'POST', `/services/${service.service_id}/restore`);
    await settled(cloud, service);
    const back = await cloud.get(service.service_id);
    expect(back.status).toBe('PAUSED');
    expect(back).not.toHaveProperty('vpc_endpoint');
    await standsWith(undefined);
    await own.answered(202, 'POST', `/services/${service.service_id}/start`);
    await cloud.until(service.service_id, 'READY');
    await allEnded(cloud);
    for (const one of [service, ...(set === null ? [] : [set])])
      await (await connectTo(cloud, one, service.initial_password)).end();
    await auditEnds(cloud);
  });
});
