/** Shared by the tests of read replica sets. */
import { messageOf } from '@howdah/contract/thrown';
import { Client } from 'pg';
import { expect } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { layoutOf, type ServiceAccess } from './ha-load.ts';
import { openMetadata } from './metadata.ts';
import { findServer } from './probe.ts';
import { until, untilExpected } from './until.ts';

/** The installation of the test file, which helpers mean where none is named. */
let cloud: Installation;

export async function installForSets(): Promise<Installation> {
  cloud = await install({
    HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0',
    HOWDAH_READ_LAG_BYTES: '4194304',
    HOWDAH_READ_LAG_SECONDS: '600',
  });
  return cloud;
}

// ── small things
// ─────────────────────────────────────────────────────────────────────────────────────────────────

export type ReplicaSet = Service['read_replica_sets'][number];
/** A set with the service that it follows. */
export type Following = { service: ServiceAccess; id: string; endpoint: Service['endpoint'] };

export const SMALL = { cpu_millis: 250, memory_gbs: 1 };

export const accepted = ({ status, body }: Answer): void =>
  expect(status, JSON.stringify(body)).toBe(202);
export const pathOf = ({ service, id }: Following, action = ''): string =>
  `/services/${service.service_id}/replicaSets/${id}${action}`;
export const post = (set: Following, action: string, body?: unknown) =>
  cloud.request('POST', pathOf(set, `/${action}`), body);
export const createPlain = (name: string, more: object = {}): Promise<ServiceAccess> =>
  cloud.create({ name, service_type: 'POSTGRES', ...more });

export async function setsOf(service: ServiceAccess, on = cloud): Promise<ReplicaSet[]> {
  return (await on.get(service.service_id)).read_replica_sets;
}

export async function untilSet(
  { service, id }: Following,
  status: ReplicaSet['status'],
  on = cloud,
): Promise<ReplicaSet> {
  return until(`the set is ${status}`, async () =>
    (await setsOf(service, on)).find((one) => one.id === id && one.status === status),
  );
}

export async function untilGone(set: Following): Promise<void> {
  await untilExpected('the set is gone', async () =>
    expect((await cloud.request('GET', pathOf(set))).status).toBe(404),
  );
}

export const asked = async (
  service: ServiceAccess,
  nodes: number,
  on = cloud,
): Promise<Following> => {
  const answer = await on.request('POST', `/services/${service.service_id}/replicaSets`, {
    name: 'readers',
    nodes,
    ...SMALL,
  });
  accepted(answer);
  const { id, endpoint } = Object(answer.body);
  return { service, id, endpoint };
};

export async function createSet(
  service: ServiceAccess,
  nodes: number,
  on = cloud,
): Promise<Following> {
  const set = await asked(service, nodes, on);
  await untilSet(set, 'active', on);
  return set;
}

export const read = (set: Following, on = cloud): Promise<Client> =>
  connectTo(on, set, set.service.initial_password);
export const write = (service: ServiceAccess, on = cloud): Promise<Client> =>
  connectTo(on, service, service.initial_password);

export async function once<T extends object>(
  connecting: Promise<Client>,
  text: string,
): Promise<T[]> {
  const client = await connecting;
  try {
    return (await client.query<T>(text)).rows;
  } finally {
    await client.end();
  }
}

/** Where new connections get to, by several of them. */
export async function portsOf(set: Following, on = cloud): Promise<Set<number>> {
  const clients = await Promise.all(Array.from({ length: 12 }, () => read(set, on)));
  const ports = await Promise.all(
    clients.map(
      async (client) =>
        (await client.query<{ port: number }>('select inet_server_port() as port')).rows[0]?.port,
    ),
  );
  for (const client of clients) await client.end();
  return new Set(ports.map(Number));
}

export const nodePaths = ({ id }: Following, n: number, on = cloud) => layoutOf(on).member(id, n);

export async function nodeOf(set: Following, n: number, on = cloud): Promise<number> {
  const { postmaster } = await until(`node ${n} runs`, () => findServer(nodePaths(set, n, on)));
  return postmaster.pid;
}

/** Waits until another server runs as the first node. */
export const untilReplaced = (set: Following, pid: number): Promise<void> =>
  untilExpected('node 1 is replaced', async () => expect(await nodeOf(set, 1)).not.toBe(pid));

/** Waits until no server runs as the first node. */
export const untilStopped = (set: Following): Promise<void> =>
  untilExpected('node 1 is stopped', async () =>
    expect(await findServer(nodePaths(set, 1))).toBeNull(),
  );

export type Detail = ReplicaSet & {
  node_states: {
    node: number;
    serving: boolean;
    lag_bytes: number | null;
    lag_seconds: number | null;
    detail: string;
  }[];
};
export const detailOf = async (set: Following, on = cloud): Promise<Detail> =>
  Object((await on.request('GET', pathOf(set))).body);

export async function untilServing(
  set: Following,
  nodes: readonly number[],
  on = cloud,
): Promise<Detail> {
  return until(`the nodes ${nodes.join()} serve reads`, async () => {
    const detail = await detailOf(set, on);
    const serving = (detail.node_states ?? []).filter((state) => state.serving);
    expect(serving.map(({ node }) => node)).toEqual(nodes);
    return detail;
  });
}

/** Waits until the newest row that was written shows through every node. */
export async function untilShown(set: Following, count: number, on = cloud): Promise<void> {
  for (const node of await nodesOf(set, on)) await untilCounted(set, node, 't', count, on);
}

/** Waits until a table has so many rows on a node. */
async function untilCounted(
  set: Following,
  { port }: { port: { n: number; port: number } },
  table: 't' | 'bulk',
  count: number,
  on: Installation,
): Promise<void> {
  const paths = nodePaths(set, port.n, on);
  const place = { host: paths.socket, port: port.port };
  // The server may start just now, or not have the table yet.
  await untilExpected(`node ${port.n} has ${count} rows in ${table}`, async () => {
    const client = new Client({ ...place, user: 'howdah', database: 'tsdb' });
    client.on('error', () => undefined);
    try {
      await client.connect();
      const { rows } = await client.query(`select count(*)::int as n from ${table}`);
      expect(rows).toEqual([{ n: count }]);
    } finally {
      await client.end().catch(() => undefined);
    }
  });
}

export async function nodesOf(
  set: Following,
  on = cloud,
): Promise<{ port: { n: number; port: number } }[]> {
  const { db, close } = await openMetadata(on.home);
  const nodes = await db
    .selectFrom('server_ports')
    .select(['server as n', 'port'])
    .where('service_id', '=', set.id)
    .orderBy('server')
    .execute();
  await close();
  return nodes.map((port) => ({ port }));
}

/** Connects, reads and leaves, again and again, and notes what was refused. */
export function startReaders(set: Following, count: number, on = cloud) {
  const refused: string[] = [];
  let reads = 0;
  let stopping = false;
  const loops = Array.from({ length: count }, async () => {
    while (!stopping) {
      try {
        const [row] = await once<{ follows: boolean }>(
          read(set, on),
          'select pg_is_in_recovery() as follows, count(*) from t',
        );
        if (row?.follows !== true)
          refused.push('the endpoint routed to a server that accepts writes');
        reads += 1;
      } catch (error) {
        refused.push(messageOf(error));
      }
    }
  });
  return {
    refused,
    more: async (wanted: number): Promise<void> => {
      const end = reads + wanted;
      await until(`${wanted} more reads are answered`, () => reads >= end);
    },
    stop: async (): Promise<{ reads: number; refused: string[] }> => {
      stopping = true;
      await Promise.all(loops);
      return { reads, refused };
    },
  };
}

export const withTable = async (
  name: string,
  more: object = {},
  on = cloud,
): Promise<ServiceAccess> => {
  const service = await on.create({ name, service_type: 'POSTGRES', ...more });
  await once(write(service, on), 'create table t (n int); insert into t values (1)');
  return service;
};

/** Writes another row to the primary without coming in by the network. */
export async function insertBehind({ service_id: id }: ServiceAccess, on = cloud): Promise<void> {
  const paths = layoutOf(on).member(id, layoutOf(on).primaryOf(id));
  const server = await findServer(paths);
  const client = new Client({
    host: paths.socket,
    port: server?.port ?? 0,
    user: 'howdah',
    database: 'tsdb',
  });
  await client.connect();
  await client.query('insert into t values (1)');
  await client.end();
}

/** Keeps node 1 from replaying while more than the limit is written. @returns what lets it go on */
export async function fallBehind(set: Following, on = cloud): Promise<() => Promise<void>> {
  const { service } = set;
  const [node, ...others] = await nodesOf(set, on);
  const at = (database: string): Client => {
    const client = new Client({
      host: nodePaths(set, 1, on).socket,
      port: node?.port.port ?? 0,
      user: 'howdah',
      database,
    });
    client.on('error', () => undefined);
    return client;
  };
  const [control, blocker] = [at('postgres'), at('tsdb')];
  await control.connect();
  // A lock that replay needs, which feedback of the node does not prevent, keeps it from going on,
  // as a long query of a user would; the WAL is received all the same.
  await control.query('alter system set max_standby_streaming_delay = -1');
  await control.query('select pg_reload_conf()');
  await control.end();
  await blocker.connect();
  await blocker.query('begin isolation level repeatable read');
  await blocker.query('select count(*) from t');
  await once(write(service, on), 'truncate t');
  await once(
    write(service, on),
    'create table bulk as select repeat(md5(g::text), 32) from generate_series(1, 20000) g',
  );
  // The others are behind too until they have replayed it.
  for (const other of others) await untilCounted(set, other, 'bulk', 20_000, on);
  return () => blocker.end();
}

/** Promotes a node behind everybody's back, and asks through the endpoint whether writes get in. */
export async function promoteBehind(set: Following, on: Installation): Promise<void> {
  const [node] = await nodesOf(set, on);
  const control = new Client({
    host: nodePaths(set, 1, on).socket,
    port: node?.port.port ?? 0,
    user: 'howdah',
    database: 'postgres',
  });
  control.on('error', () => undefined);
  await control.connect();
  await control.query('select pg_promote(true)').catch(() => undefined);
  await control.end().catch(() => undefined);
}
/** Whether the endpoint routes to a server that accepts writes. */
export const routesToWriter = async (set: Following, on: Installation): Promise<boolean> => {
  const rows = await once<{ recovering: boolean }>(
    read(set, on),
    'select pg_is_in_recovery() as recovering',
  ).catch(() => []);
  return rows[0]?.recovering === false;
};
