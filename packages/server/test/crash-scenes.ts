/** The operations that are crashed in: each makes what it needs, asks, and says how it ended. See crash.ts. */
import { randomUUID } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { findProgram } from '../src/engine/local/host/daemon.ts';
import { createLayout } from '../src/engine/local/host/layout.ts';
import { firstStart, playable, until, type Playable, type Scene, type Testbed } from './crash.ts';
import { connectTo, type Installation, type Service } from './harness.ts';
import { createSet } from './sets.ts';
import { project, vpcOf } from './vpc-calls.ts';

/** A service that a test knows how to get into. */
export type ServiceAccess = {
  service_id: string;
  endpoint: Service['endpoint'];
  initial_password: string;
};

/** Scenes that share an installation, and how it is set up. */
export type Family = {
  name: string;
  settings: Record<string, string>;
  /** Whether it can be played on this machine: without HAProxy there are no replicas. */
  playable: boolean;
  make: (testbed: Testbed) => Promise<Playable[]>;
};

/** All that there is to crash in. */
export async function crashFamilies(): Promise<Family[]> {
  const gateways = (await findProgram('haproxy')) !== null;
  return [
    {
      name: 'creates',
      settings: { HOWDAH_RESTORE_HOURS: '0' },
      playable: true,
      make: createScenes,
    },
    { name: 'power', settings: {}, playable: true, make: powerScenes },
    { name: 'changes', settings: {}, playable: true, make: changeScenes },
    { name: 'vpcs', settings: {}, playable: true, make: vpcScenes },
    { name: 'sets', settings: {}, playable: gateways, make: setScenes },
    { name: 'replicas', settings: {}, playable: gateways, make: haScenes },
  ];
}

/** Scenes that leave nothing behind: deleted services are gone at once (HOWDAH_RESTORE_HOURS=0). */
async function createScenes(testbed: Testbed): Promise<Playable[]> {
  const { cloud } = testbed;
  const running = await cloud.create({ name: 'running parent', service_type: 'POSTGRES' });
  await insert(cloud, running, 'one');
  const afterOne = await moment(cloud, running);
  await insert(cloud, running, 'two');
  const paused = await cloud.create({ name: 'paused parent', service_type: 'POSTGRES' });
  await insert(cloud, paused, 'asleep');
  await power(cloud, paused, 'stop');
  const lastWord = await latestOf(cloud, paused);
  return [
    firstStart(),
    creation(cloud, 'create', ['new'], null, () => ({})),
    creation(cloud, 'fork of now, running parent', ['new', 'parent'], running, () => ({
      fork_strategy: 'NOW',
    })),
    creation(cloud, 'fork of now, paused parent', ['new'], paused, () => ({
      fork_strategy: 'NOW',
    })),
    creation(cloud, 'fork of the last snapshot', ['new', 'parent'], running, () => ({
      fork_strategy: 'LAST_SNAPSHOT',
    })),
    creation(cloud, 'fork at a point in time', ['new', 'parent'], running, () => ({
      fork_strategy: 'PITR',
      target_time: afterOne,
    })),
    creation(cloud, 'fork at a point in time, paused parent', ['new'], paused, () => ({
      fork_strategy: 'PITR',
      target_time: lastWord,
    })),
    removal(cloud, 'delete for good', ''),
    await keeping(testbed),
  ];
}

/** Scenes on one service that comes back each time (HOWDAH_RESTORE_HOURS is long). */
async function powerScenes({ cloud }: Testbed): Promise<Playable[]> {
  const service = await cloud.create({ name: 'comes back', service_type: 'POSTGRES' });
  await insert(cloud, service, 'kept');
  const on = () => power(cloud, service, 'start');
  const off = () => power(cloud, service, 'stop');
  const remove = async () => {
    await cloud.request('DELETE', `/services/${service.service_id}`);
    await until(() => isGone(cloud, service), 'a delete does not end');
  };
  const restore = async () => {
    await cloud.request('POST', `/services/${service.service_id}/restore`);
    await cloud.until(service.service_id, 'READY');
  };
  let cpu = 500;
  return [
    change(cloud, service, 'stop', {
      before: on,
      ask: ['POST', '/stop'],
      becomes: 'PAUSED',
      after: on,
    }),
    change(cloud, service, 'start', {
      before: off,
      ask: ['POST', '/start'],
      becomes: 'READY',
      after: on,
    }),
    change(cloud, service, 'resize', {
      before: async () => void (cpu = 1500 - cpu),
      ask: ['POST', '/resize', () => ({ cpu_millis: String(cpu) })],
      becomes: 'READY',
      after: on,
    }),
    change(cloud, service, 'delete', {
      before: on,
      ask: ['DELETE', ''],
      becomes: null,
      after: restore,
    }),
    change(cloud, service, 'restore', {
      before: remove,
      ask: ['POST', '/restore'],
      becomes: 'READY',
      after: on,
    }),
    removal(cloud, 'purge', '?purge=true'),
  ];
}

/** Scenes of what is changed of a service that goes on running. */
async function changeScenes({ cloud }: Testbed): Promise<Playable[]> {
  const service: ServiceAccess = await cloud.create({ name: 'changed', service_type: 'POSTGRES' });
  const id = service.service_id;
  await insert(cloud, service, 'kept');
  let count = 0;
  const now = () => cloud.get(id);
  const pooler = (action: 'enablePooler' | 'disablePooler') => async () => {
    await cloud.request('POST', `/services/${id}/${action}`);
    await until(() => nothingGoesOn(cloud), `${action} does not end`);
  };
  const nothing = async () => undefined;
  const next = async () => void (count += 1);
  const poolers = (await findProgram('pgbouncer')) !== null;
  return [
    change(cloud, service, 'new password', {
      before: async () => {
        await next();
        service.initial_password = `password ${count}`;
      },
      ask: ['POST', '/updatePassword', () => ({ password: service.initial_password })],
      becomes: 'READY',
      after: nothing,
    }),
    change(cloud, service, 'rename', {
      before: next,
      ask: ['POST', '/rename', () => ({ name: `name ${count}` })],
      becomes: 'READY',
      shows: async () => (await now()).name === `name ${count}`,
      after: nothing,
    }),
    change(cloud, service, 'environment', {
      before: () => cloud.request('POST', `/services/${id}/setEnvironment`, { environment: 'DEV' }),
      ask: ['POST', '/setEnvironment', () => ({ environment: 'PROD' })],
      becomes: 'READY',
      shows: async () => (await now()).metadata.environment,
      after: nothing,
    }),
    change(cloud, service, 'verify backup', {
      before: nothing,
      ask: ['POST', '/backups/verify'],
      becomes: 'READY',
      shows: () => readdir(join(cloud.home, 'data', 'scratch')),
      after: nothing,
    }),
    ...(poolers
      ? [
          change(cloud, service, 'enable pooler', {
            before: pooler('disablePooler'),
            ask: ['POST', '/enablePooler'],
            becomes: 'READY',
            shows: async () => (await now()).connection_pooler !== undefined,
            after: nothing,
          }),
          change(cloud, service, 'disable pooler', {
            before: pooler('enablePooler'),
            ask: ['POST', '/disablePooler'],
            becomes: 'READY',
            shows: async () => (await now()).connection_pooler !== undefined,
            after: nothing,
          }),
        ]
      : []),
  ];
}

/** Scenes of a service with a replica. */
async function haScenes({ cloud }: Testbed): Promise<Playable[]> {
  const service: ServiceAccess = await cloud.create({
    name: 'held twice',
    service_type: 'POSTGRES',
  });
  const id = service.service_id;
  await insert(cloud, service, 'kept');
  const members = async () =>
    (
      await cloud.client.GET('/projects/{project_id}/services/{service_id}/members', {
        params: { path: { project_id: cloud.projectId, service_id: id } },
      })
    ).data ?? [];
  const follow = async (count: number) =>
    (await members()).length === count + 1 &&
    (await members()).every(({ role, state }) => role === 'primary' || state === 'streaming');
  const replicas = (count: number) => async () => {
    await cloud.request('POST', `/services/${id}/setHA`, {
      replica_count: count,
      sync_replica_count: count,
    });
    await until(
      async () => (await cloud.get(id)).status === 'READY' && (await nothingGoesOn(cloud)),
      'replicas are not set',
    );
    await until(() => follow(count), 'no replica follows');
  };
  let before: { primary: number | undefined; failovers: number } = {
    primary: undefined,
    failovers: 0,
  };
  const primaryNow = async () => (await members()).find(({ role }) => role === 'primary')?.node;
  const failovers = async () =>
    (await cloud.operations(id)).filter(({ kind }) => kind === 'failover').length;
  /** A primary that was killed after a switchover may have handed back: then who it is says nothing of the switchover. */
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
      shows: async () => ({ moved: await hasMoved(), members: (await members()).length }),
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
async function setScenes({ cloud }: Testbed): Promise<Playable[]> {
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
    await until(isActive, 'a set is not made');
    return { id: (await there())?.id ?? '' };
  };
  const away = async () => {
    await remove();
    await until(isAway, 'a set does not go');
    return { id: '' };
  };
  /** What its clients see. */
  const seen = async (id: string) => {
    const set = await there();
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
      outcome: ({ id }) => seen(id),
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

/** What is done to VPCs, each time from the same beginning: a service, with a read replica set where there can be one, and two VPCs that are not peered. */
async function vpcScenes({ cloud }: Testbed): Promise<Playable[]> {
  const own = project(cloud.request);
  const [vpc, peer] = [await own.vpc('10.1.0.0/16'), await own.vpc('10.2.0.0/16')];
  const service = await cloud.create({ name: 'crashing', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  await insert(cloud, service, 'kept');
  const set = (await findProgram('haproxy')) === null ? null : await createSet(service, 1, cloud);
  /** Asked again it is done, or is gone already. */
  const ask = async (method: string, path: string, body?: unknown): Promise<void> => {
    const { status } = await own.call(method, path, body);
    if (status >= 500) throw new Error(`${method} ${path}: ${status}`);
  };
  const isWell = async (): Promise<boolean> => {
    const { status, read_replica_sets: sets } = await cloud.get(id);
    return (
      status === 'READY' &&
      sets.every((one) => one.status === 'active') &&
      (await nothingGoesOn(cloud))
    );
  };
  /** What a client on the machine itself sees behind a public endpoint; within a VPC it is let in nowhere. */
  const behind = ({
    endpoint,
    vpc_endpoint: inside,
  }: Pick<Service, 'endpoint' | 'vpc_endpoint'>) => {
    const at = { ...service, endpoint };
    return inside === undefined
      ? namesIn(cloud, at)
      : withClient(cloud, at, readNames).catch(() => 'refused');
  };
  const outcome = async () => {
    // A server that was killed a moment ago may not be missed yet.
    await until(isWell, 'it does not get well');
    const now = await cloud.get(id);
    const endpoints = [now, ...now.read_replica_sets];
    const [mine, theirs] = [await own.peerings(vpc), await own.peerings(peer)];
    return {
      inside: endpoints.map(({ vpc_endpoint: endpoint }) => endpoint?.vpc_id ?? null),
      seen: await Promise.all(endpoints.map(behind)),
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
    await until(isWell, 'it does not get in');
  };
  const getOut = async () => {
    await askOut();
    await until(isWell, 'it does not get out');
  };
  const apart = async () => {
    for (const { id: old } of await own.peerings(vpc))
      await ask('DELETE', `/vpcs/${vpc.id}/peerings/${old}`);
  };
  const joined = async () =>
    (await holds()) ? undefined : ask('POST', `/vpcs/${vpc.id}/peerings`, peering);
  const third = async () =>
    [await own.answered(200, 'GET', '/vpcs')]
      .flat()
      .map(vpcOf)
      .find(({ cidr }) => cidr === '10.3.0.0/16');
  const removeThird = async () => {
    const found = await third();
    if (found !== undefined) await ask('DELETE', `/vpcs/${found.id}`);
  };
  const makeThird = () =>
    ask('POST', '/vpcs', { name: 'third', cidr: '10.3.0.0/16', region_code: 'local' });
  return [
    scene('attach', getOut, askIn, inside),
    scene('detach', getIn, askOut, async () => !(await inside())),
    scene('peer', apart, joined, holds),
    scene('end a peering', joined, apart, async () => (await own.peerings(vpc)).length === 0),
    scene('create a VPC', removeThird, makeThird, async () => (await third()) !== undefined),
    scene('delete a VPC', makeThird, removeThird, async () => (await third()) === undefined),
  ];
}

// ── create and fork ──────────────────────────────────────────────────────────────────────────────────────────────

type Creation = { name: string; child: ServiceAccess | null };
let creates = 0;

function creation(
  cloud: Installation,
  name: string,
  servers: readonly string[],
  parent: ServiceAccess | null,
  body: () => object,
): Playable {
  const path = parent === null ? '/services' : `/services/${parent.service_id}/forkService`;
  return playable<Creation>({
    name,
    servers,
    prepare: async () => ({ name: `creation ${++creates}`, child: null }),
    roles: () => (parent === null ? {} : { [parent.service_id]: 'parent' }),
    act: async (stage) => {
      // A client whose request was not answered looks whether it was heard.
      stage.child = await adopted(cloud, stage.name);
      if (stage.child !== null) return;
      const type = parent === null ? { service_type: 'POSTGRES' } : {};
      const { status, body: answer } = await cloud.request('POST', path, {
        name: stage.name,
        ...type,
        ...body(),
      });
      if (status !== 202) throw new Error(`${name}: ${status} ${JSON.stringify(answer)}`);
      stage.child = accessOf(answer);
    },
    done: async ({ child }) =>
      child !== null &&
      (await cloud.get(child.service_id)).status === 'READY' &&
      (await nothingGoesOn(cloud)),
    outcome: async ({ child }) => {
      if (child === null) return 'never created';
      return {
        names: await namesIn(cloud, child),
        parent: parent === null ? null : { status: (await cloud.get(parent.service_id)).status },
        operations: await endings(cloud, child),
      };
    },
    clear: async ({ child }) => {
      if (child === null) return;
      await cloud.request('DELETE', `/services/${child.service_id}`);
      await until(() => isGone(cloud, child), 'a delete does not end');
    },
  });
}

/** A service that was created although the call was not answered: it gets another password, since the first is not known. */
async function adopted(cloud: Installation, name: string): Promise<ServiceAccess | null> {
  const { data } = await cloud.client.GET('/projects/{project_id}/services', {
    params: { path: { project_id: cloud.projectId } },
  });
  const found = data?.find((service) => service.name === name);
  if (found === undefined) return null;
  await cloud.until(found.service_id, 'READY');
  const initial_password = 'a password of the adopted';
  await cloud.request('POST', `/services/${found.service_id}/updatePassword`, {
    password: initial_password,
  });
  return { service_id: found.service_id, endpoint: found.endpoint, initial_password };
}

// ── delete, for good ─────────────────────────────────────────────────────────────────────────────────────────────

function removal(cloud: Installation, name: string, query: string): Playable {
  return playable<ServiceAccess>({
    name,
    servers: ['new'],
    prepare: () => cloud.create({ name: 'to be deleted', service_type: 'POSTGRES' }),
    roles: ({ service_id }) => ({ [service_id]: 'new' }),
    act: async ({ service_id }) => {
      const { status } = await cloud.request('DELETE', `/services/${service_id}${query}`);
      if (status >= 500) throw new Error(`${name}: ${status}`);
    },
    done: async (service) => (await isGone(cloud, service)) && (await nothingGoesOn(cloud)),
    outcome: async (service) => ({
      directory: (await readdir(join(cloud.home, 'data', 'services'))).includes(service.service_id),
      operations: await endings(cloud, service),
    }),
    clear: async () => undefined,
  });
}

// ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────────

/** More than the window of backups that the default is. */
const AGE_MS = 4 * 86_400_000;

/** A start of the control plane sees to backups: it takes the snapshot that is due, and prunes what the window needs no more. */
async function keeping({ cloud }: Testbed): Promise<Playable> {
  const service = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
  const { snapshots } = createLayout(join(cloud.home, 'data')).service(service.service_id);
  const whole = async () =>
    (await readdir(snapshots)).filter((name) => !name.endsWith('.new')).toSorted();
  let written = 0;
  return playable<{ before: string[] }>({
    name: 'snapshot and prune',
    servers: ['kept'],
    prepare: async () => {
      await insert(cloud, service, `snapshot ${++written}`);
      // A row alone is so little that no snapshot is due for it.
      await withClient(cloud, service, (client) =>
        client.query("select pg_logical_emit_message(true, 'filler', repeat('x', 20000))"),
      );
      // Taken long ago by what is noted of them: the newest is now what the window begins with, all before it are no more needed.
      for (const name of await whole()) await age(join(snapshots, name, 'snapshot.json'));
      return { before: await whole() };
    },
    roles: () => ({ [service.service_id]: 'kept' }),
    act: async () => {
      await cloud.stop('SIGTERM');
      await cloud.up();
    },
    done: async ({ before }) => {
      const now = await whole();
      return now.length === 2 && !before.includes(now[1] ?? '') && (await nothingGoesOn(cloud));
    },
    outcome: async ({ before }) => {
      const [oldest, newest] = await whole();
      const child = accessOf(
        (
          await cloud.request('POST', `/services/${service.service_id}/forkService`, {
            fork_strategy: 'LAST_SNAPSHOT',
          })
        ).body,
      );
      await cloud.until(child.service_id, 'READY');
      const names = await namesIn(cloud, child);
      await cloud.request('DELETE', `/services/${child.service_id}`);
      await until(() => isGone(cloud, child), 'a delete does not end');
      const { body } = await cloud.request('GET', `/services/${service.service_id}/backups`);
      return {
        oldestWasNewest: oldest === before.at(-1),
        newestIsNew: newest !== undefined && !before.includes(newest),
        lostRows: written - names.length,
        problem:
          typeof body === 'object' && body !== null && 'problem' in body ? body.problem : body,
        operations: await endings(cloud, service),
      };
    },
    clear: async () => undefined,
  });
}

/** Makes a snapshot look as if it had been taken some days ago. */
export async function age(path: string): Promise<void> {
  const snapshot: unknown = JSON.parse(await readFile(path, 'utf8'));
  if (typeof snapshot !== 'object' || snapshot === null || !('takenMs' in snapshot))
    throw new Error(`${path}: no snapshot`);
  await writeFile(
    path,
    JSON.stringify({ ...snapshot, takenMs: Number(snapshot.takenMs) - AGE_MS }),
  );
}

// ── changes of one service ───────────────────────────────────────────────────────────────────────────────────────

type Change = {
  before: () => Promise<unknown>;
  ask: readonly ['POST' | 'DELETE', string, (() => object)?];
  /** null: nobody sees it any more. */
  becomes: Service['status'] | null;
  /** What else tells that it has come about. */
  shows?: () => Promise<unknown>;
  after: () => Promise<unknown>;
};

/** A change that is asked for under one name until it is answered: it is made once, whatever dies. */
function change(
  cloud: Installation,
  service: ServiceAccess,
  name: string,
  { before, ask, becomes, shows, after }: Change,
): Playable {
  const [method, path, body] = ask;
  return playable<{ begunMs: number; once: string }>({
    name,
    servers: ['it'],
    prepare: async () => {
      await before();
      return { begunMs: Date.now(), once: randomUUID() };
    },
    roles: () => ({ [service.service_id]: 'it' }),
    act: async ({ once }) => {
      const { status, body: answer } = await cloud.request(
        method,
        `/services/${service.service_id}${path}`,
        body?.(),
        {
          'Idempotency-Key': once,
        },
      );
      // A delete has no name: asked for again, it finds nothing any more.
      if (status >= (method === 'POST' ? 400 : 500))
        throw new Error(`${name}: ${status} ${JSON.stringify(answer)}`);
    },
    done: async () => {
      const ended =
        becomes === null
          ? await isGone(cloud, service)
          : (await cloud.get(service.service_id)).status === becomes;
      return ended && (await nothingGoesOn(cloud));
    },
    outcome: async ({ begunMs }) => {
      const operations = (await endings(cloud, service, begunMs)).toSorted();
      const shown = await shows?.();
      await after();
      return { operations, shown, names: await namesIn(cloud, service) };
    },
    clear: async () => undefined,
  });
}

// ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────

export function accessOf(body: unknown): ServiceAccess {
  if (
    typeof body !== 'object' ||
    body === null ||
    !('service_id' in body) ||
    !('initial_password' in body) ||
    !('endpoint' in body)
  )
    throw new Error(`not a created service: ${JSON.stringify(body)}`);
  const { endpoint } = body;
  if (
    typeof endpoint !== 'object' ||
    endpoint === null ||
    !('host' in endpoint) ||
    !('port' in endpoint)
  )
    throw new Error('no endpoint');
  return {
    service_id: String(body.service_id),
    initial_password: String(body.initial_password),
    endpoint: { host: String(endpoint.host), port: Number(endpoint.port) },
  };
}

export async function withClient<T>(
  cloud: Installation,
  service: ServiceAccess,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

/** Asks a service something that changes nothing. Its server may have been killed a moment ago: then it is asked again. */
async function askPatiently<T>(
  cloud: Installation,
  service: ServiceAccess,
  ask: (client: Client) => Promise<T>,
): Promise<T> {
  let answer: T | undefined;
  let last: unknown;
  const asked = async (): Promise<boolean> => {
    answer = await withClient(cloud, service, ask).catch((error: unknown) => {
      last = error;
      return undefined;
    });
    return answer !== undefined;
  };
  await until(asked, '').catch(() => undefined);
  if (answer === undefined) throw last;
  return answer;
}

/** Rows in the order of their writing; a service without the table has none. */
async function readNames(client: Client): Promise<string[]> {
  const { rows: tables } = await client.query<{ t: string | null }>("select to_regclass('t') as t");
  if (tables[0]?.t === null) return [];
  return (await client.query<{ name: string }>('select name from t order by n')).rows.map(
    ({ name }) => name,
  );
}

export const namesIn = (cloud: Installation, service: ServiceAccess): Promise<string[]> =>
  askPatiently(cloud, service, readNames);

export const insert = (cloud: Installation, service: ServiceAccess, name: string): Promise<void> =>
  withClient(cloud, service, async (client) => {
    await client.query(
      'create table if not exists t (n int generated always as identity primary key, name text)',
    );
    await client.query('insert into t (name) values ($1)', [name]);
  });

/** A moment of the service's clock after all that was written and before what will be. */
export async function moment(cloud: Installation, service: ServiceAccess): Promise<string> {
  await sleep(20);
  const now = await withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ now: string }>(
      `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
    );
    return rows[0]?.now ?? '';
  });
  await sleep(20);
  return now;
}

/** The latest point in time that a service's backups reach. */
export async function latestOf(
  cloud: Installation,
  { service_id }: Pick<ServiceAccess, 'service_id'>,
): Promise<string> {
  const { data } = await cloud.client.GET('/projects/{project_id}/services/{service_id}/backups', {
    params: { path: { project_id: cloud.projectId, service_id } },
  });
  return data?.window.latest ?? '';
}

/** Has the newest backup verified. @returns how that ended, and why */
export async function verificationOf(
  cloud: Installation,
  { service_id }: Pick<ServiceAccess, 'service_id'>,
): Promise<{ status: unknown; error: unknown }> {
  const { status, headers } = await cloud.request('POST', `/services/${service_id}/backups/verify`);
  if (status !== 202) throw new Error(`verify: ${status}`);
  let verification = Object();
  const ended = async (): Promise<boolean> => {
    verification = Object(
      (await cloud.request('GET', `/operations/${headers.get('Operation-Id')}`)).body,
    );
    return typeof verification.finished === 'string';
  };
  await until(ended, 'a verification does not end');
  return { status: verification.status, error: verification.error };
}

export async function power(
  cloud: Installation,
  { service_id: id }: Pick<ServiceAccess, 'service_id'>,
  action: 'start' | 'stop',
): Promise<void> {
  const status = action === 'start' ? 'READY' : 'PAUSED';
  if ((await cloud.get(id)).status === status) return;
  await cloud.request('POST', `/services/${id}/${action}`);
  await cloud.until(id, status);
}

export async function isGone(
  cloud: Installation,
  { service_id: id }: Pick<ServiceAccess, 'service_id'>,
): Promise<boolean> {
  return (await cloud.request('GET', `/services/${id}`)).status === 404;
}

async function nothingGoesOn(cloud: Installation): Promise<boolean> {
  return (await cloud.operations()).every(({ finished }) => finished !== null);
}

/** How the operations asked for on a service ended; what Howdah does by itself and the end of the scene before are none of them. */
async function endings(
  cloud: Installation,
  { service_id: id }: Pick<ServiceAccess, 'service_id'>,
  sinceMs = 0,
): Promise<string[]> {
  return (await cloud.operations(id))
    .filter(
      ({ kind, created, requested_by }) =>
        requested_by !== 'howdah' &&
        !(kind === 'updatePassword' && sinceMs === 0) &&
        Date.parse(created) >= sinceMs,
    )
    .map(({ kind, status }) => `${kind} ${status}`);
}
