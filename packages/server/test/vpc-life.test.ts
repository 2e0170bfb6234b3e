/**
 * VPCs with network namespaces from create to delete: reboots, addresses, leftovers; and restored
 * services.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import { createSet, untilSet } from './sets.ts';
import {
  ability,
  allEnded,
  auditEnds,
  destroyService,
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
  visit,
  vpcEndpointOf,
  type ServiceAccess,
} from './vpc.ts';
import { has, messageOf, project } from './vpc-calls.ts';
import { untilExpected } from './until.ts';

describe.runIf(ability.method === 'bridge')('bridge', () => {
  const at = stageNetworks();

  test('region and doctor report the method', async () => {
    const { cloud, own } = at();
    const regions = await own.answered(200, 'GET', '/regions');
    expect(regions).toMatchObject([
      { vpc: { method: 'bridge', note: expect.stringContaining('bridge') } },
    ]);
    expect((await cloud.cli('doctor')).stdout).toContain('VPCs: bridge');
  });

  test(
    'networks come back after a reboot, and a fork is in the VPC of its parent',
    { tags: 'slow' },
    async () => {
      const { cloud, own } = at();
      const [a, b] = [await own.vpc('10.88.0.0/16'), await own.vpc('10.89.0.0/16')];
      await own.peer(a, cloud.projectId, b.id);
      const service = await cloud.create({
        name: 'lasting',
        service_type: 'POSTGRES',
        vpc_id: a.id,
      });
      const set = haproxy === null ? null : await createSet(service, 1, cloud);
      const forked = await own.answered(
        202,
        'POST',
        `/services/${service.service_id}/forkService`,
        {
          fork_strategy: 'NOW',
        },
      );
      expect(forked).toMatchObject({ vpc_endpoint: { vpc_id: a.id } });
      if (!has(forked, 'service_id', 'initial_password')) throw new Error('no fork');
      const fork: ServiceAccess = {
        ...(await cloud.until(forked.service_id, 'READY')),
        initial_password: forked.initial_password,
      };
      expect(vpcEndpointOf(fork).host).not.toBe(vpcEndpointOf(service).host);
      /**
       * Each is reached from the other side of the peering, and at its public endpoint by nobody.
       */
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
          await untilExpected('the service answers in the VPC', async () =>
            expect(
              (await visit(cloud, one, vpcEndpointOf(place), { within, patienceMs: LONG })).how,
            ).toMatch(/^in as/),
          );
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
      // Parts that somebody removed while it ran.
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
    },
  );

  test('each address is assigned once, and a full VPC refuses a service', async () => {
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
      await untilExpected('the service is deleted', async () =>
        expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404),
      );
    await own.remove(vpc);
  });

  test('leftovers of a removed installation are reported, another is not touched', async () => {
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
        `${stray} belongs to an installation that no longer exists; its data was in /nowhere/data`,
      );
      expect(stdout).not.toContain(name);
      // One of ours of which no record speaks is found by the audit, and removed when VPCs are next
      // looked at.
      const unknown = `${await prefixOf(cloud)}999999`;
      await untilExpected('the integrity check finds the unknown namespace', async () => {
        // A round may have removed it before the check looked.
        if (!(await namespacesOf(cloud)).includes(unknown))
          await sh('ip', ['netns', 'add', unknown]);
        expect(await cloud.audit()).toContain(
          'network of VPC 999999, which the metadata database does not know: ' +
            `ip netns del ${unknown}`,
        );
      });
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
        await untilExpected('the integrity check finds the listener', async () =>
          expect(await cloud.audit()).toContain(
            `something listens in VPC ${vpc.id} at 10.91.0.1:${port}, ` +
              `a port of service ${outside.service_id}, which is not in there`,
          ),
        );
      } finally {
        listener.kill();
      }
      await destroyService(cloud, outside);
      await goesWithoutTrace(cloud, own, vpc);
      await untilExpected('the unknown namespace is removed', async () =>
        expect(await namespacesOf(cloud)).not.toContain(unknown),
      );
      expect(existsSync(`/run/netns/${stray}`)).toBe(true);
    } finally {
      await sh('ip', ['netns', 'del', stray]);
    }
  });
});

describe('a deleted service that can be restored', () => {
  let cloud: Installation;
  beforeAll(async () => {
    cloud = await install();
  });
  afterAll(async () => {
    expect(await cloud?.destroy()).toEqual([]);
  });

  test('comes back into its VPC, or paused without networks if that is deleted', async () => {
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
