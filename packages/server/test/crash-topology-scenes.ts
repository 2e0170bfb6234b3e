/** Scenes of members, read replica sets and VPCs. */
import { playable, type Playable, type Scene, type Testbed } from './crash.ts';
import { type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { findProgram } from './probe.ts';
import { createSet } from './sets.ts';
import { project, vpcOf, type Project } from './vpc-calls.ts';
import {
  askPatiently,
  endings,
  insert,
  namesIn,
  nothingGoesOn,
  readNames,
  type ServiceAccess,
  withClient,
} from './service-access.ts';
import { change } from './crash-playables.ts';
import { until } from './until.ts';

/** Scenes of a service with a replica. */
export async function haScenes({ cloud }: Testbed): Promise<Playable[]> {
  const service: ServiceAccess = await cloud.create({
    name: 'held twice',
    service_type: 'POSTGRES',
  });
  const id = service.service_id;
  await insert(cloud, service, 'kept');
  const servers = async () =>
    (
      await cloud.client.GET('/projects/{project_id}/services/{service_id}/members', {
        params: { path: { project_id: cloud.projectId, service_id: id } },
      })
    ).data ?? [];
  const follow = async (count: number) =>
    (await servers()).length === count + 1 &&
    (await servers()).every(({ role, state }) => role === 'primary' || state === 'streaming');
  const replicas = (count: number) => async () => {
    await cloud.request('POST', `/services/${id}/setHA`, {
      replica_count: count,
      sync_replica_count: count,
    });
    await until(
      'the number of replicas is set',
      async () => (await cloud.get(id)).status === 'READY' && (await nothingGoesOn(cloud)),
    );
    await until('the replicas follow', () => follow(count));
  };
  let before: { primary: number | undefined; failovers: number } = {
    primary: undefined,
    failovers: 0,
  };
  const primaryNow = async () => (await servers()).find(({ role }) => role === 'primary')?.node;
  const failovers = async () =>
    (await cloud.operations(id)).filter(({ kind }) => kind === 'failover').length;
  /**
   * A primary that was killed after a switchover may have handed back: then who it is says nothing
   * of the switchover.
   */
  const hasMoved = async () =>
    (await primaryNow()) !== before.primary || (await failovers()) > before.failovers;
  const nothing = async () => undefined;
  return [
    change(cloud, service, 'a replica more', {
      before: replicas(0),
      ask: ['POST', '/setHA', () => ({ replica_count: 1, sync_replica_count: 1 })],
      becomes: 'READY',
      shows: async () => (await cloud.get(id)).ha_replicas,
      after: nothing,
    }),
    change(cloud, service, 'switchover', {
      before: async () => {
        await replicas(1)();
        before = { primary: await primaryNow(), failovers: await failovers() };
      },
      ask: ['POST', '/switchover'],
      becomes: 'READY',
      shows: async () => ({ moved: await hasMoved(), members: (await servers()).length }),
      after: nothing,
    }),
    change(cloud, service, 'a replica less', {
      before: replicas(1),
      ask: ['POST', '/setHA', () => ({ replica_count: 0, sync_replica_count: 0 })],
      becomes: 'READY',
      shows: async () => (await cloud.get(id)).ha_replicas,
      after: nothing,
    }),
  ];
}

/** Scenes of the read replica sets of one service. */
export async function setScenes({ cloud }: Testbed): Promise<Playable[]> {
  const service = await cloud.create({ name: 'followed', service_type: 'POSTGRES' });
  await insert(cloud, service, 'shown');
  const path = `/services/${service.service_id}/replicaSets`;
  const there = async () => (await cloud.get(service.service_id)).read_replica_sets[0];
  const create = async () => {
    // A client whose request was not answered looks whether it was heard.
    if ((await there()) !== undefined) return;
    const { status, body } = await cloud.request('POST', path, {
      name: 'readers',
      nodes: 2,
      cpu_millis: 250,
      memory_gbs: 1,
    });
    if (status !== 202) throw new Error(`create: ${status} ${JSON.stringify(body)}`);
  };
  const remove = async () => {
    const set = await there();
    if (set !== undefined) await cloud.request('DELETE', `${path}/${set.id}`);
  };
  const isActive = async () => (await there())?.status === 'active' && (await nothingGoesOn(cloud));
  const isAway = async () => (await there()) === undefined && (await nothingGoesOn(cloud));
  const whole = async () => {
    await create();
    await until('the set is active', isActive);
    return { id: (await there())?.id ?? '' };
  };
  const away = async () => {
    await remove();
    await until('the set is deleted', isAway);
    return { id: '' };
  };
  const scene = (
    name: string,
    servers: readonly string[],
    more: Pick<Scene<{ id: string }>, 'prepare' | 'act' | 'done'>,
  ): Playable =>
    playable<{ id: string }>({
      name,
      servers,
      roles: ({ id }) => ({
        [service.service_id]: 'parent',
        ...(id === '' ? {} : { [id]: 'set' }),
      }),
      outcome: async ({ id }) => seenOfSet(cloud, service, await there(), id),
      clear: async () => void (await away()),
      ...more,
    });
  return [
    scene('create a read replica set', ['parent'], { prepare: away, act: create, done: isActive }),
    scene('resize a read replica set', ['parent'], {
      prepare: whole,
      act: async ({ id }) => {
        const { status } = await cloud.request('POST', `${path}/${id}/resize`, {
          cpu_millis: '500',
        });
        // Refused while it is not active yet, after a start of the control plane: asked again.
        if (status >= 400) throw new Error(`resize: ${status}`);
      },
      done: async () => (await there())?.cpu_millis === 500 && (await isActive()),
    }),
    scene('delete a read replica set', ['parent'], { prepare: whole, act: remove, done: isAway }),
  ];
}

/** The data that clients of a set see, and how its operations ended. */
async function seenOfSet(
  cloud: Installation,
  service: ServiceAccess,
  set: Service['read_replica_sets'][number] | undefined,
  id: string,
) {
  const slots = await askPatiently(
    cloud,
    service,
    async (client) => (await client.query('select slot_name from pg_replication_slots')).rowCount,
  );
  if (set === undefined) return { slots };
  const names = await namesIn(cloud, {
    service_id: set.id,
    endpoint: set.endpoint,
    initial_password: service.initial_password,
  });
  return {
    slots,
    names,
    size: set.cpu_millis,
    operations: await endings(cloud, { service_id: id === '' ? set.id : id }),
  };
}

/**
 * Calls of a project that may be made again: a call is done then, or what it is about is gone
 * already.
 */
function askOf(own: Project) {
  return async (method: string, path: string, body?: unknown): Promise<void> => {
    const { status } = await own.call(method, path, body);
    if (status >= 500) throw new Error(`${method} ${path}: ${status}`);
  };
}

/** A VPC that no service is in. */
function thirdVpc(own: Project) {
  const ask = askOf(own);
  const find = async () =>
    [await own.answered(200, 'GET', '/vpcs')]
      .flat()
      .map(vpcOf)
      .find(({ cidr }) => cidr === '10.3.0.0/16');
  return {
    isThere: async (): Promise<boolean> => (await find()) !== undefined,
    make: () => ask('POST', '/vpcs', { name: 'third', cidr: '10.3.0.0/16', region_code: 'local' }),
    remove: async (): Promise<void> => {
      const found = await find();
      if (found !== undefined) await ask('DELETE', `/vpcs/${found.id}`);
    },
  };
}

async function isWellWithSets(cloud: Installation, id: string): Promise<boolean> {
  const { status, read_replica_sets: sets } = await cloud.get(id);
  return (
    status === 'READY' &&
    sets.every((one) => one.status === 'active') &&
    (await nothingGoesOn(cloud))
  );
}

/**
 * The names that a client on the machine itself sees behind a public endpoint; in a VPC no such
 * client is allowed.
 */
function namesBehind(
  cloud: Installation,
  service: ServiceAccess,
  { endpoint, vpc_endpoint: inside }: Pick<Service, 'endpoint' | 'vpc_endpoint'>,
): Promise<string[] | string> {
  const at = { ...service, endpoint };
  return inside === undefined
    ? namesIn(cloud, at)
    : withClient(cloud, at, readNames).catch(() => 'refused');
}

/**
 * Changes of VPCs, each time from the same beginning: a service, with a read replica set where
 * there can be one, and two VPCs that are not peered.
 */
export async function vpcScenes({ cloud }: Testbed): Promise<Playable[]> {
  const own = project(cloud.request);
  const [vpc, peer] = [await own.vpc('10.1.0.0/16'), await own.vpc('10.2.0.0/16')];
  const service = await cloud.create({ name: 'crashing', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  await insert(cloud, service, 'kept');
  const set = (await findProgram('haproxy')) === null ? null : await createSet(service, 1, cloud);
  const ask = askOf(own);
  const isWell = () => isWellWithSets(cloud, id);
  const outcome = async () => {
    // A server that was killed a moment ago may not be missed yet.
    await until('the service is well', isWell);
    const now = await cloud.get(id);
    const endpoints = [now, ...now.read_replica_sets];
    const [mine, theirs] = [await own.peerings(vpc), await own.peerings(peer)];
    return {
      inside: endpoints.map(({ vpc_endpoint: endpoint }) => endpoint?.vpc_id ?? null),
      seen: await Promise.all(endpoints.map((one) => namesBehind(cloud, service, one))),
      peerings: [mine, theirs].map((list) => list.map(({ status }) => status)),
    };
  };
  const scene = (
    name: string,
    before: () => Promise<unknown>,
    act: () => Promise<void>,
    done: () => Promise<boolean>,
  ): Playable =>
    playable<null>({
      name,
      servers: ['it'],
      prepare: async () => {
        await before();
        return null;
      },
      roles: () => ({ [id]: 'it', ...(set === null ? {} : { [set.id]: 'set' }) }),
      act,
      done: async () => (await done()) && (await isWell()),
      outcome,
      clear: async () => undefined,
    });
  const inside = async () => (await cloud.get(id)).vpc_endpoint !== undefined;
  const holds = async () => {
    const sides = [await own.peerings(vpc), await own.peerings(peer)];
    return sides.every((list) => list.some(({ status }) => status === 'active'));
  };
  const peering = {
    peer_account_id: cloud.projectId,
    peer_region_code: 'local',
    peer_vpc_id: peer.id,
  };
  const askIn = () => ask('POST', `/services/${id}/attachToVPC`, { vpc_id: vpc.id });
  const askOut = () => ask('POST', `/services/${id}/detachFromVPC`);
  const getIn = async () => {
    await askIn();
    await until('the service is well inside the VPC', isWell);
  };
  const getOut = async () => {
    await askOut();
    await until('the service is well outside the VPC', isWell);
  };
  const apart = async () => {
    for (const { id: old } of await own.peerings(vpc))
      await ask('DELETE', `/vpcs/${vpc.id}/peerings/${old}`);
  };
  const joined = async () =>
    (await holds()) ? undefined : ask('POST', `/vpcs/${vpc.id}/peerings`, peering);
  const third = thirdVpc(own);
  return [
    scene('attach', getOut, askIn, inside),
    scene('detach', getIn, askOut, async () => !(await inside())),
    scene('peer', apart, joined, holds),
    scene('end a peering', joined, apart, async () => (await own.peerings(vpc)).length === 0),
    scene('create a VPC', third.remove, third.make, third.isThere),
    scene('delete a VPC', third.make, third.remove, async () => !(await third.isThere())),
  ];
}
