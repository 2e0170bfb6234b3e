/**
 * VPCs with network namespaces: who reaches a service, its members, its pooler and its read replica
 * sets.
 */
import { describe, expect, test } from 'vitest';
import { findDaemon, findNetworks } from './probe.ts';
import { power } from './service-access.ts';
import { layoutOf, type ServiceAccess } from './ha-load.ts';
import {
  asked,
  createSet,
  insertBehind,
  nodeOf,
  pathOf,
  untilSet,
  untilShown,
  withTable,
} from './sets.ts';
import {
  ability,
  attach,
  auditEnds,
  destroyService,
  detach,
  goesWithoutTrace,
  haproxy,
  LONG,
  pgbouncer,
  prefixOf,
  settled,
  stageNetworks,
  visit,
  vpcEndpointOf,
} from './vpc.ts';
import { messageOf, type Vpc } from './vpc-calls.ts';
import { untilExpected } from './until.ts';

type Stage = ReturnType<ReturnType<typeof stageNetworks>>;
type Endpoint = ReturnType<typeof vpcEndpointOf>;
/** The command before a program that runs in a network namespace. */
type Within = readonly string[];

/**
 * Each endpoint is reached from inside the VPC, and from nowhere else; not by its public address
 * either.
 */
async function expectReachedFrom(
  cloud: Stage['cloud'],
  service: ServiceAccess,
  endpoints: readonly ServiceAccess['endpoint'][],
  within: Within,
  elsewhere: readonly Within[],
): Promise<void> {
  for (const one of endpoints) {
    expect((await visit(cloud, service, one, { within, patienceMs: LONG })).how).toMatch(/^in as/);
    for (const other of elsewhere)
      expect((await visit(cloud, service, one, { within: other })).how).toMatch(/^refused/);
    expect((await visit(cloud, service, { ...one, host: '127.0.0.1' }, {})).how).toMatch(
      /^refused/,
    );
  }
}

/**
 * A peering lets clients of the peer in for as long as it exists. @returns a session from inside,
 * which stays
 */
async function expectPeeringOpens(
  { cloud, own }: Stage,
  service: ServiceAccess,
  { vpc, peer, endpoint }: { vpc: Vpc; peer: Vpc; endpoint: Endpoint },
  [inside, peered]: readonly [Within, Within],
) {
  const peering = await own.peer(vpc, cloud.projectId, peer.id);
  const guest = await visit(cloud, service, endpoint, {
    within: peered,
    patienceMs: LONG,
  });
  const stays = await visit(cloud, service, endpoint, {
    within: inside,
    patienceMs: LONG,
  });
  expect([guest.how, stays.how]).toEqual([
    expect.stringMatching(/^in as/),
    expect.stringMatching(/^in as/),
  ]);
  await own.answered(204, 'DELETE', `/vpcs/${vpc.id}/peerings/${peering.id}`);
  await guest.ends();
  expect(stays.goesOn()).toBe(true);
  return stays;
}

/** A set that is made inside a VPC is inside from the first moment on. */
async function expectSetMadeInside(
  { cloud, own }: Stage,
  service: ServiceAccess,
  { vpc, endpoint }: { vpc: Vpc; endpoint: Endpoint },
  within: Within,
): Promise<void> {
  const second = await asked(service, 1, cloud);
  expect(vpcEndpointOf(await cloud.get(second.id))).toEqual({
    host: endpoint.host,
    port: second.endpoint.port,
    vpc_id: vpc.id,
  });
  await untilSet(second, 'active', cloud);
  await untilShown(second, 3, cloud);
  expect(
    (
      await visit(
        cloud,
        service,
        { ...endpoint, port: second.endpoint.port },
        { within, patienceMs: LONG },
      )
    ).how,
  ).toMatch(/^in as/);
  expect((await visit(cloud, service, second.endpoint, {})).how).toMatch(/^refused/);
  await own.answered(202, 'DELETE', pathOf(second));
  await untilExpected('the second set is gone', async () =>
    expect((await cloud.request('GET', pathOf(second))).status).toBe(404),
  );
}

describe.runIf(ability.method === 'bridge')('bridge', () => {
  const at = stageNetworks();

  test('a service in a VPC is reached from inside only, until it is detached', async () => {
    const { cloud, own, plugged } = at();
    const vpc = await own.vpc('10.80.0.0/16');
    const service = await cloud.create({ name: 'moving', service_type: 'POSTGRES' });
    const before = await visit(cloud, service, service.endpoint, { patienceMs: LONG });
    expect(before.how).toBe('in as 127.0.0.1/32');
    const attached = await attach(cloud, service, vpc);
    await before.ends();
    expect(attached).toMatchObject({
      status: 'READY',
      endpoint: service.endpoint,
      service_id: service.service_id,
    });
    expect(attached.vpc_endpoint).toEqual({
      host: '10.80.0.2',
      port: service.endpoint.port,
      vpc_id: vpc.id,
    });
    expect(attached.vpcEndpoint).toEqual(attached.vpc_endpoint);
    const endpoint = vpcEndpointOf(attached);

    const inside = await visit(cloud, service, endpoint, {
      within: (await plugged(vpc, '10.80.200.1')).within,
      patienceMs: LONG,
    });
    expect(inside.how).toBe('in as 10.80.200.1/32');
    const outside = await plugged(null, null);
    for (const [where, at] of [
      [outside.within, endpoint],
      [[], endpoint],
      [[], service.endpoint],
      [(await plugged(vpc, '10.80.200.2')).within, { ...endpoint, host: '127.0.0.1' }],
    ] as const)
      expect((await visit(cloud, service, at, { within: where })).how).toMatch(/^refused/);
    // The service listens on its own address and on no other, the router's among it.
    const network = (await findNetworks(await prefixOf(cloud))).find(
      ({ vpcId }) => vpcId === vpc.id,
    );
    expect(network?.listening).toEqual([{ address: '10.80.0.2', port: service.endpoint.port }]);
    // Again is already so; another VPC only after a detach.
    const other = await own.vpc('10.81.0.0/16');
    expect(
      (
        await own.call('POST', `/services/${service.service_id}/attachToVPC`, { vpc_id: vpc.id })
      ).headers.get('operation-id'),
    ).toBeNull();
    const refused = await own.call('POST', `/services/${service.service_id}/attachToVPC`, {
      vpc_id: other.id,
    });
    expect([refused.status, messageOf(refused)]).toEqual([
      409,
      expect.stringContaining(`VPC ${vpc.id}`),
    ]);
    expect(inside.goesOn()).toBe(true);
    await auditEnds(cloud);

    const detached = await detach(cloud, service);
    expect(detached).toMatchObject({ status: 'READY', endpoint: service.endpoint });
    expect(detached).not.toHaveProperty('vpc_endpoint');
    await inside.ends();
    expect((await visit(cloud, service, service.endpoint, { patienceMs: LONG })).how).toBe(
      'in as 127.0.0.1/32',
    );
    await untilExpected('the network of the VPC is back', async () =>
      expect(
        (await findNetworks(await prefixOf(cloud))).find(({ vpcId }) => vpcId === vpc.id)
          ?.addresses,
      ).toEqual(['10.80.0.1/16']),
    );
    await destroyService(cloud, service);
    for (const one of [vpc, other]) await goesWithoutTrace(cloud, own, one);
  });

  test.runIf(haproxy !== null && pgbouncer !== null)(
    'members, gateway and pooler follow their service, and a failover does too',
    { tags: 'slow' },
    async () => {
      const { cloud, own, plugged } = at();
      const vpc = await own.vpc('10.87.0.0/24');
      const service = await cloud.create({
        name: 'ha',
        service_type: 'POSTGRES',
        replica_count: 1,
        sync_replica_count: 1,
        enable_pooler: true,
      });
      const endpoint = vpcEndpointOf(await attach(cloud, service, vpc));
      const client = await plugged(vpc, '10.87.0.200');
      const pooler = { host: endpoint.host, port: service.connection_pooler?.endpoint.port ?? 0 };
      for (const at of [endpoint, pooler]) {
        expect(
          (await visit(cloud, service, at, { within: client.within, patienceMs: LONG })).how,
        ).toMatch(/^in as/);
        expect((await visit(cloud, service, { ...at, host: '127.0.0.1' }, {})).how).toMatch(
          /^refused/,
        );
      }
      const open = await visit(cloud, service, endpoint, {
        within: client.within,
        patienceMs: LONG,
      });
      expect(
        (await cloud.request('POST', `/services/${service.service_id}/drill`, { kind: 'failover' }))
          .status,
      ).toBe(202);
      await settled(cloud, service);
      await open.ends();
      const drill = (await cloud.operations(service.service_id)).find(
        ({ kind }) => kind === 'drill',
      );
      expect(drill?.steps.map(({ detail }) => detail).join()).toContain('; 0 of');
      for (const at of [endpoint, pooler])
        expect(
          (await visit(cloud, service, at, { within: client.within, patienceMs: LONG })).how,
        ).toMatch(/^in as/);
      // All of it starts again in there.
      for (const [action, status] of [
        ['stop', 'PAUSED'],
        ['start', 'READY'],
      ] as const) {
        await own.answered(202, 'POST', `/services/${service.service_id}/${action}`);
        await cloud.until(service.service_id, status);
      }
      expect(
        (await visit(cloud, service, pooler, { within: client.within, patienceMs: LONG })).how,
      ).toMatch(/^in as/);
      await auditEnds(cloud);
      await detach(cloud, service);
      expect((await visit(cloud, service, service.endpoint, { patienceMs: LONG })).how).toMatch(
        /^in as/,
      );
      expect((await visit(cloud, service, endpoint, { within: client.within })).how).toMatch(
        /^refused/,
      );
      await auditEnds(cloud);
      await destroyService(cloud, service);
      await own.remove(vpc);
    },
  );

  test.runIf(haproxy !== null && pgbouncer !== null)(
    'read replica sets follow their service, and go on following its primary',
    { tags: 'slow' },
    async () => {
      const { cloud, own, plugged } = at();
      const [vpc, peer] = [await own.vpc('10.92.0.0/24'), await own.vpc('10.93.0.0/24')];
      const service = await withTable('followed', { replica_count: 1 }, cloud);
      const set = await createSet(service, 2, cloud);
      await own.answered(200, 'POST', pathOf(set, '/enablePooler'));
      await untilShown(set, 1, cloud);
      const before = await visit(cloud, service, set.endpoint, { patienceMs: LONG });
      expect(before.how).toMatch(/^in as/);

      const attached = await attach(cloud, service, vpc);
      await before.ends();
      const [shown] = attached.read_replica_sets;
      const endpoint = vpcEndpointOf(await cloud.get(set.id));
      expect(endpoint).toEqual({
        host: vpcEndpointOf(attached).host,
        port: set.endpoint.port,
        vpc_id: vpc.id,
      });
      expect(shown).toMatchObject({
        status: 'active',
        endpoint: set.endpoint,
        vpc_endpoint: endpoint,
      });
      const endpoints = [
        endpoint,
        { host: endpoint.host, port: shown?.connection_pooler?.endpoint.port ?? 0 },
      ];
      const inside = await plugged(vpc, '10.92.0.200');
      const [outside, peered] = [await plugged(null, null), await plugged(peer, '10.93.0.200')];
      await expectReachedFrom(cloud, service, endpoints, inside.within, [
        outside.within,
        peered.within,
        [],
      ]);
      await insertBehind(service, cloud);
      await untilShown(set, 2, cloud);
      await auditEnds(cloud);

      // A failover inside; and a peering lets its clients in, as long as it holds.
      expect(
        (await cloud.request('POST', `/services/${service.service_id}/drill`, { kind: 'failover' }))
          .status,
      ).toBe(202);
      await settled(cloud, service);
      await insertBehind(service, cloud);
      await untilShown(set, 3, cloud);
      const stays = await expectPeeringOpens(at(), service, { vpc, peer, endpoint }, [
        inside.within,
        peered.within,
      ]);

      await expectSetMadeInside(at(), service, { vpc, endpoint }, inside.within);
      expect(messageOf(await own.call('DELETE', `/vpcs/${vpc.id}`))).not.toContain(set.id);

      const detached = await detach(cloud, service);
      await stays.ends();
      expect(detached.read_replica_sets).toMatchObject([{ id: set.id, status: 'active' }]);
      expect(detached.read_replica_sets[0]).not.toHaveProperty('vpc_endpoint');
      expect((await visit(cloud, service, set.endpoint, { patienceMs: LONG })).how).toMatch(
        /^in as/,
      );
      expect((await visit(cloud, service, endpoint, { within: inside.within })).how).toMatch(
        /^refused/,
      );
      await insertBehind(service, cloud);
      await untilShown(set, 4, cloud);
      await auditEnds(cloud);
      await destroyService(cloud, service);
      for (const one of [vpc, peer]) await goesWithoutTrace(cloud, own, one);
    },
  );

  test.runIf(haproxy !== null)(
    'sets of a paused service move with it, and servers that die in a VPC are started again there',
    { tags: 'slow' },
    async () => {
      const { cloud, own, plugged } = at();
      const vpc = await own.vpc('10.94.0.0/24');
      const service = await withTable('asleep', {}, cloud);
      const set = await createSet(service, 1, cloud);
      await power(cloud, service, 'stop');
      expect(await attach(cloud, service, vpc)).toMatchObject({
        status: 'PAUSED',
        vpc_endpoint: { vpc_id: vpc.id },
      });
      expect((await cloud.operations(set.id))[0]).toMatchObject({
        kind: 'attachToVPC',
        status: 'succeeded',
      });
      await power(cloud, service, 'start');
      await untilSet(set, 'active', cloud);
      const endpoint = vpcEndpointOf(await cloud.get(set.id));
      const { within } = await plugged(vpc, '10.94.0.200');
      const comesBack = () =>
        untilExpected('the client is accepted in the VPC', async () =>
          expect((await visit(cloud, service, endpoint, { within, patienceMs: LONG })).how).toMatch(
            /^in as/,
          ),
        );
      await comesBack();
      const gateway = await findDaemon(layoutOf(cloud).gateway(set.id));
      for (const pid of [await nodeOf(set, 1, cloud), gateway?.pid ?? 0]) {
        process.kill(pid, 'SIGKILL');
        await comesBack();
        expect((await visit(cloud, service, set.endpoint, {})).how).toMatch(/^refused/);
      }
      await untilSet(set, 'active', cloud);
      await auditEnds(cloud);
      await destroyService(cloud, service);
      await goesWithoutTrace(cloud, own, vpc);
    },
  );
});
