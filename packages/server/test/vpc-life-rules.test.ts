/** VPCs by addresses alone: what they may be, what becomes of them, attach and detach. */
import { followEvents, type Schemas } from '@howdah/client';
import { describe, expect, test } from 'vitest';
import { type Installation } from './harness.ts';
import {
  anotherProject,
  attach,
  destroyService,
  detach,
  LONG,
  settled,
  stageRules,
  visit,
} from './vpc.ts';
import { has, messageOf } from './vpc-calls.ts';
import { untilExpected } from './until.ts';

/** All events of the project after one of them. */
async function eventsOf(cloud: Installation, after: string): Promise<Schemas['Event'][]> {
  const found: Schemas['Event'][] = [];
  for await (const event of followEvents({ ...cloud, after, follow: false })) found.push(event);
  return found;
}

describe('address', () => {
  const at = stageRules();

  test('the region reports the method, and what enables the other one', async () => {
    const { own } = at();
    const regions = await own.answered(200, 'GET', '/regions');
    expect(regions).toMatchObject([
      { vpc: { method: 'address', note: expect.stringContaining('networks of their own take') } },
    ]);
  });

  test('a VPC with a wrong name, network or region is refused', async () => {
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
      [{ nmae: 'y' }, 'nmae'],
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

  test('events of VPCs and peerings come in order, to their projects only', async () => {
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
    await untilExpected('the end of the VPC is reported', async () =>
      expect((await told('vpc.status')).at(-1)).toEqual({
        vpc_id: vpc.id,
        name: 'told',
        status: 'deleted',
      }),
    );
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
    await untilExpected('all deliveries are listed', async () =>
      expect((await deliveries()).length).toBe(4 + 3 + 2 + 5),
    );
    await own.answered(204, 'DELETE', `/webhooks/${hook.id}`);
  });

  test('attach and detach check their parameters, and work for a paused service', async () => {
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
