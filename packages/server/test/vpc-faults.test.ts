/**
 * VPCs under races and faults. The control plane killed in the middle of what is done to them:
 * crash-vpcs.test.ts.
 */
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { installCrashing, type Testbed } from './crash.ts';
import { findNetworks } from './probe.ts';
import { createSet, SMALL, withTable } from './sets.ts';
import {
  ability,
  allEnded,
  attach,
  auditEnds,
  destroyService,
  detach,
  goesWithoutTrace,
  haproxy,
  namespacesOf,
  prefixOf,
  settled,
  stageNetworks,
  stageRules,
  vpcEndpointOf,
  type ServiceAccess,
} from './vpc.ts';
import { messageOf, peeringOf, project, vpcOf } from './vpc-calls.ts';
import { atMoment, until, untilExpected } from './until.ts';

describe('address', () => {
  const at = stageRules();

  test('races: an attach or a peering against the end of the VPC, one of them wins', async () => {
    const { cloud, own } = at();
    const service = await cloud.create({ name: 'racer', service_type: 'POSTGRES' });
    const outcomes = new Set<string>();
    for (let n = 0; n < 10; n++) {
      const [vpc, other] = [await own.vpc('10.11.0.0/16'), await own.vpc('10.12.0.0/16')];
      const pause = () => atMoment(n);
      const [attached, removed] = await Promise.all([
        own.call('POST', `/services/${service.service_id}/attachToVPC`, { vpc_id: vpc.id }),
        pause().then(() => own.call('DELETE', `/vpcs/${vpc.id}`)),
      ]);
      outcomes.add(`attach ${attached.status} ${removed.status}`);
      expect([
        [202, 409],
        [404, 204],
      ]).toContainEqual([attached.status, removed.status]);
      if (attached.status === 202) {
        await settled(cloud, service);
        await detach(cloud, service);
      }
      const near = attached.status === 202 ? vpc : await own.vpc('10.11.0.0/16');
      const body = {
        peer_account_id: cloud.projectId,
        peer_region_code: 'local',
        peer_vpc_id: other.id,
      };
      const [peered, gone] = await Promise.all([
        own.call('POST', `/vpcs/${near.id}/peerings`, body),
        pause().then(() => own.call('DELETE', `/vpcs/${other.id}`)),
      ]);
      const { status } = peeringOf(peered.body);
      outcomes.add(`peering ${status} ${gone.status}`);
      expect([
        ['active', 409],
        ['invalid', 204],
      ]).toContainEqual([status, gone.status]);
      await own.remove(near);
      if (gone.status !== 204) await own.remove(other);
    }
    process.stdout.write(`races ended as ${[...outcomes].join(', ')}\n`);
    // Many at once, of which one gets in.
    const [a, b] = [await own.vpc('10.13.0.0/16'), await own.vpc('10.14.0.0/16')];
    const attachedTo = await Promise.all(
      [a, b, a, b].map(async ({ id }) => {
        const path = `/services/${service.service_id}/attachToVPC`;
        return (await own.call('POST', path, { vpc_id: id })).status === 202 ? [id] : [];
      }),
    );
    // A call that comes when the first one is done is accepted too, if it asks for the same VPC.
    expect(new Set(attachedTo.flat()).size).toBe(1);
    await settled(cloud, service);
    const overlapping = await Promise.all(
      ['10.15.0.0/16', '10.15.0.0/17', '10.15.64.0/24'].map((cidr) =>
        own.call('POST', '/vpcs', { name: 'x', cidr, region_code: 'local' }),
      ),
    );
    expect(overlapping.map(({ status }) => status).toSorted((x, y) => x - y)).toEqual([
      201, 409, 409,
    ]);
    await detach(cloud, service);
    await destroyService(cloud, service);
    for (const { status, body } of overlapping) if (status === 201) await own.remove(vpcOf(body));
    for (const vpc of [a, b]) await own.remove(vpc);
    await auditEnds(cloud);
  });
});

describe.runIf(ability.method === 'bridge' && haproxy !== null)(
  'bridge, with read replica sets',
  () => {
    const at = stageNetworks();

    test(
      "races: an attach against a set that is made, resized or deleted, or its VPC's end",
      { tags: 'slow' },
      async () => {
        const { cloud, own } = at();
        const service = await cloud.create({ name: 'racer', service_type: 'POSTGRES' });
        const path = `/services/${service.service_id}`;
        const make = () =>
          own.call('POST', `${path}/replicaSets`, { name: 'readers', nodes: 1, ...SMALL });
        const outcomes = new Set<string>();
        const race = async (
          name: string,
          other: () => Promise<Answer>,
          pauseMs: number,
        ): Promise<void> => {
          const vpc = await own.vpc('10.99.0.0/24');
          const [attached, answer] = await Promise.all([
            own.call('POST', `${path}/attachToVPC`, { vpc_id: vpc.id }),
            atMoment(pauseMs).then(other),
          ]);
          outcomes.add(`${name} ${answer.status}`);
          expect([attached.status, answer.status < 500], `${name}: ${messageOf(answer)}`).toEqual([
            202,
            true,
          ]);
          const now = await withSets(cloud, service.service_id);
          const places = [now, ...now.read_replica_sets].map(
            ({ vpc_endpoint: endpoint }) => endpoint?.host,
          );
          expect(new Set(places)).toEqual(new Set([vpcEndpointOf(now).host]));
          await auditEnds(cloud);
          expect((await own.call('DELETE', `/vpcs/${vpc.id}`)).status).toBe(409);
          await own.answered(202, 'POST', `${path}/detachFromVPC`);
          await withSets(cloud, service.service_id);
          await own.answered(204, 'DELETE', `/vpcs/${vpc.id}`);
          await untilExpected('no namespace is left', async () =>
            expect(await namespacesOf(cloud)).toEqual([]),
          );
        };
        const set = async () =>
          `${path}/replicaSets/${(await cloud.get(service.service_id)).read_replica_sets[0]?.id}`;
        for (const pauseMs of [0, 5, 40]) {
          await race('create a set', make, pauseMs);
          if ((await cloud.get(service.service_id)).read_replica_sets.length === 0)
            await createSet(service, 1, cloud);
          await race(
            'resize a set',
            async () =>
              own.call('POST', `${await set()}/resize`, {
                cpu_millis: pauseMs === 5 ? '250' : '500',
              }),
            pauseMs,
          );
          await race('delete a set', async () => own.call('DELETE', await set()), pauseMs);
          // A service that is moved to a VPC while it is still being made.
          await make();
          await race('nothing', () => own.call('GET', path), 0);
          const again = await own.vpc('10.99.0.0/24');
          const [attached, removed] = await Promise.all([
            own.call('POST', `${path}/attachToVPC`, { vpc_id: again.id }),
            atMoment(pauseMs).then(() => own.call('DELETE', `/vpcs/${again.id}`)),
          ]);
          outcomes.add(`delete the VPC ${attached.status} ${removed.status}`);
          expect([
            [202, 409],
            [404, 204],
          ]).toContainEqual([attached.status, removed.status]);
          await withSets(cloud, service.service_id);
          if (attached.status === 202) {
            await own.answered(202, 'POST', `${path}/detachFromVPC`);
            await withSets(cloud, service.service_id);
            await own.answered(204, 'DELETE', `/vpcs/${again.id}`);
          }
          await own.call('DELETE', await set());
          await withSets(cloud, service.service_id);
        }
        process.stdout.write(`races ended as ${[...outcomes].join(', ')}\n`);
        await destroyService(cloud, service);
      },
    );
  },
);

describe.runIf(ability.method === 'bridge' && haproxy !== null)('held in the middle of it', () => {
  let testbed: Testbed;
  beforeAll(async () => {
    testbed = await installCrashing({ HOWDAH_RESTORE_HOURS: '0' });
  });
  afterAll(async () => {
    expect(await testbed.destroy()).toEqual([]);
  });

  test(
    'an address is its service’s until the last of its sets has left it',
    { tags: 'slow' },
    async () => {
      const { cloud } = testbed;
      const own = project(cloud.request);
      const vpc = await own.vpc('10.100.0.0/28');
      const service = await withTable('leaving', {}, cloud);
      const set = await createSet(service, 1, cloud);
      const { host } = vpcEndpointOf(await attach(cloud, service, vpc));
      const holds = async () =>
        (await findNetworks(await prefixOf(cloud)))
          .find(({ vpcId }) => vpcId === vpc.id)
          ?.addresses.includes(`${host}/28`);
      /** Before the gateway of the set is opened in the desired network. */
      const holdSet = (effect: 'writeFile' | 'chown') =>
        testbed.holdAt({ [set.id]: 'set' }, `${effect} services/set/haproxy.conf.new`);
      const operation = async () => (await cloud.operations(service.service_id))[0];
      await holdSet('writeFile');
      await own.answered(202, 'POST', `/services/${service.service_id}/detachFromVPC`);
      await testbed.held();
      // The service itself has left by then, or does soon.
      await (await connectPatiently(cloud, service)).end();
      expect(await operation()).toMatchObject({ kind: 'detachFromVPC', status: 'running' });
      expect(await holds()).toBe(true);
      await own.remove(await own.vpc('10.101.0.0/28')); // has all of them looked at
      expect(await holds()).toBe(true);
      await testbed.release();
      await withSets(cloud, service.service_id);
      expect(await operation()).toMatchObject({ kind: 'detachFromVPC', status: 'succeeded' });
      await untilExpected('the VPC has no such address', async () =>
        expect(await holds()).toBe(false),
      );
      await auditEnds(cloud);

      // Deleted in the middle of it, nothing is left either.
      await holdSet('chown');
      await own.answered(202, 'POST', `/services/${service.service_id}/attachToVPC`, {
        vpc_id: vpc.id,
      });
      await testbed.held();
      await own.answered(202, 'DELETE', `/services/${service.service_id}`);
      await testbed.release();
      await destroyService(cloud, service);
      await testbed.disarm();
      await goesWithoutTrace(cloud, own, vpc);
    },
  );
});

/** A client that comes as soon as it is let in. */
const connectPatiently = (cloud: Installation, service: ServiceAccess): Promise<Client> =>
  until('the service accepts the client', () =>
    connectTo(cloud, service, service.initial_password),
  );

/** A service once nothing is under way on it and its sets. */
async function withSets(cloud: Installation, id: string): Promise<Service> {
  await allEnded(cloud);
  return cloud.get(id);
}
