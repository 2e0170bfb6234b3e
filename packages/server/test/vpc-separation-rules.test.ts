/**
 * VPCs by addresses alone: who reaches a service, its members, its pooler and its read replica
 * sets.
 */
import { describe, expect, test } from 'vitest';
import { createSet, nodeOf, pathOf, withTable } from './sets.ts';
import {
  around,
  attach,
  auditEnds,
  destroyService,
  detach,
  haproxy,
  LONG,
  pgbouncer,
  settled,
  stageRules,
  visit,
  type Reachable,
} from './vpc.ts';
import { untilExpected } from './until.ts';

describe('address', () => {
  const at = stageRules();

  test('a service in a VPC refuses outside clients, on its port and its pooler', async () => {
    const { cloud, own } = at();
    const vpc = await own.vpc('10.240.0.0/24');
    const service = await cloud.create({
      name: 'ruled',
      service_type: 'POSTGRES',
      enable_pooler: pgbouncer !== null,
    });
    const endpoints = [
      service.endpoint,
      ...(service.connection_pooler === undefined ? [] : [service.connection_pooler.endpoint]),
    ];
    const before = await Promise.all(
      endpoints.map((endpoint) => visit(cloud, service, endpoint, { patienceMs: LONG })),
    );
    for (const { how } of before) expect(how).toMatch(/^in as/);
    const attached = await attach(cloud, service, vpc);
    expect(attached.vpc_endpoint).toEqual({ ...service.endpoint, vpc_id: vpc.id });
    for (const session of before) await session.ends();
    for (const endpoint of endpoints)
      expect((await visit(cloud, service, endpoint, {})).how).toMatch(/^refused/);
    await auditEnds(cloud);
    await detach(cloud, service);
    for (const endpoint of endpoints)
      expect((await visit(cloud, service, endpoint, { patienceMs: LONG })).how).toMatch(/^in as/);
    await destroyService(cloud, service);
    await own.remove(vpc);
  });

  test('the gateway applies the rules for its members', { tags: 'slow' }, async () => {
    const { cloud, own, inside } = at();
    if (haproxy === null)
      return expect(
        await own.call('POST', '/services', { name: 'x', replica_count: 1 }),
      ).toMatchObject({ status: 422 });
    const vpc = await own.vpc('10.241.0.0/24');
    const service = await cloud.create({
      name: 'ruled members',
      service_type: 'POSTGRES',
      replica_count: 1,
    });
    const before = await visit(cloud, service, service.endpoint, { patienceMs: LONG });
    await attach(cloud, service, vpc);
    await before.ends();
    expect((await visit(cloud, service, service.endpoint, {})).how).toMatch(/^refused/);
    if (inside !== null) {
      const near = await own.vpc(around(inside.address));
      const peering = await own.peer(vpc, cloud.projectId, near.id);
      const come = async (patienceMs: number) =>
        visit(cloud, service, service.endpoint, { from: inside?.address ?? '', patienceMs });
      await untilExpected('the client is accepted', async () =>
        expect((await come(LONG)).how).toMatch(/^in as/),
      );
      const open = await come(LONG);
      await own.answered(204, 'DELETE', `/vpcs/${vpc.id}/peerings/${peering.id}`);
      await open.ends();
      await untilExpected('the client is refused', async () =>
        expect((await come(3000)).how).toMatch(/^refused/),
      );
      await own.remove(near);
    }
    expect(
      (await cloud.request('POST', `/services/${service.service_id}/drill`, { kind: 'switchover' }))
        .status,
    ).toBe(202);
    await settled(cloud, service);
    expect((await cloud.operations(service.service_id))[0]).toMatchObject({
      kind: 'drill',
      status: 'succeeded',
    });
    await detach(cloud, service);
    expect((await visit(cloud, service, service.endpoint, { patienceMs: LONG })).how).toMatch(
      /^in as/,
    );
    await destroyService(cloud, service);
    await own.remove(vpc);
  });

  test(
    'clients of the VPC and of its peers connect, and stay when other sessions are terminated',
    { tags: 'slow' },
    async () => {
      const { cloud, own, inside } = at();
      // A machine without a private address has nobody who could be inside.
      if (inside === null) return;
      const { address } = inside;
      const [vpc, peer] = [await own.vpc('10.242.0.0/24'), await own.vpc(around(address))];
      const service = await cloud.create({
        name: 'inner',
        service_type: 'POSTGRES',
        enable_pooler: pgbouncer !== null,
      });
      const endpoints = [
        service.endpoint,
        ...(service.connection_pooler === undefined ? [] : [service.connection_pooler.endpoint]),
      ];
      const [stays, goes] = [
        await visit(cloud, service, service.endpoint, { from: address, patienceMs: LONG }),
        await visit(cloud, service, service.endpoint, { patienceMs: LONG }),
      ];
      await attach(cloud, service, peer);
      await goes.ends();
      expect(stays.goesOn()).toBe(true);
      for (const endpoint of endpoints) {
        expect(
          (await visit(cloud, service, endpoint, { from: address, patienceMs: LONG })).how,
        ).toMatch(/^in as/);
        expect((await visit(cloud, service, endpoint, {})).how).toMatch(/^refused/);
      }
      await detach(cloud, service);
      expect(stays.goesOn()).toBe(true);
      await attach(cloud, service, vpc);
      await stays.ends();
      const peering = await own.peer(vpc, cloud.projectId, peer.id);
      expect(peering.status).toBe('active');
      for (const endpoint of endpoints)
        await untilExpected('the client in the network is accepted', async () =>
          expect(
            (await visit(cloud, service, endpoint, { from: address, patienceMs: LONG })).how,
          ).toMatch(/^in as/),
        );
      const peered = await Promise.all(
        endpoints.map((endpoint) =>
          visit(cloud, service, endpoint, { from: address, patienceMs: LONG }),
        ),
      );
      await own.answered(204, 'DELETE', `/vpcs/${vpc.id}/peerings/${peering.id}`);
      for (const session of peered) await session.ends();
      for (const endpoint of endpoints)
        expect((await visit(cloud, service, endpoint, { from: address })).how).toMatch(/^refused/);
      await destroyService(cloud, service);
      for (const one of [vpc, peer]) await own.remove(one);
    },
  );

  test.runIf(haproxy !== null && pgbouncer !== null)(
    'the rules of a service apply to its read replica sets',
    { tags: 'slow' },
    async () => {
      const { cloud, own, inside } = at();
      const vpc = await own.vpc('10.243.0.0/24');
      const service = await withTable('ruled followed', {}, cloud);
      const set = await createSet(service, 2, cloud);
      await own.answered(200, 'POST', pathOf(set, '/enablePooler'));
      const pooler = (await cloud.get(set.id)).connection_pooler?.endpoint ?? set.endpoint;
      const endpoints = [set.endpoint, pooler];
      const before = await Promise.all(
        endpoints.map((endpoint) => visit(cloud, service, endpoint, { patienceMs: LONG })),
      );
      for (const { how } of before) expect(how).toMatch(/^in as/);
      const nodes = [await nodeOf(set, 1, cloud), await nodeOf(set, 2, cloud)];
      const attached = await attach(cloud, service, vpc);
      for (const session of before) await session.ends();
      expect(attached.read_replica_sets[0]?.vpc_endpoint).toEqual({
        ...set.endpoint,
        vpc_id: vpc.id,
      });
      for (const endpoint of endpoints)
        expect((await visit(cloud, service, endpoint, {})).how).toMatch(/^refused/);
      await auditEnds(cloud);
      if (inside !== null) {
        const near = await own.vpc(around(inside.address));
        const peering = await own.peer(vpc, cloud.projectId, near.id);
        const come = async (endpoint: Reachable) =>
          visit(cloud, service, endpoint, { from: inside.address, patienceMs: LONG });
        for (const endpoint of endpoints)
          await untilExpected('the client is accepted', async () =>
            expect((await come(endpoint)).how).toMatch(/^in as/),
          );
        const open = await Promise.all(endpoints.map(come));
        await own.answered(204, 'DELETE', `/vpcs/${vpc.id}/peerings/${peering.id}`);
        for (const session of open) await session.ends();
        for (const endpoint of endpoints)
          await untilExpected('the client is refused', async () =>
            expect((await visit(cloud, service, endpoint, { from: inside.address })).how).toMatch(
              /^refused/,
            ),
          );
        await own.remove(near);
      }
      const second = await createSet(service, 1, cloud);
      expect((await visit(cloud, service, second.endpoint, {})).how).toMatch(/^refused/);
      await detach(cloud, service);
      for (const endpoint of [...endpoints, second.endpoint])
        expect((await visit(cloud, service, endpoint, { patienceMs: LONG })).how).toMatch(/^in as/);
      // The gateway checks the allowed networks: no node was restarted for them.
      expect([await nodeOf(set, 1, cloud), await nodeOf(set, 2, cloud)]).toEqual(nodes);
      await destroyService(cloud, service);
      await own.remove(vpc);
    },
  );
});
