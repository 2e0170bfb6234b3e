/**
 * HA, the pooler and a read replica set against the same topology by hand. The servers by hand have
 * the settings of a service of the default size, so that the gateway, the pooler and our own work
 * beside the servers are what differs.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  bareKit,
  connectBare,
  makeBare,
  removeBare,
  setPassword,
  startBare,
  type BareKit,
  type BareServer,
} from './lib/bare.ts';
import type { Context } from './lib/bench.ts';
import { atEnd } from './lib/cleanup.ts';
import { ask, connectOverTls, create, openCloud, type Cloud } from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { interleave, measured, valuesOf, type Case } from './lib/measure.ts';
import { startPair } from './lib/pair-by-hand.ts';
import { PGBOUNCER_MISSING, POOLED_DATABASE, poolerByHand } from './lib/pooler-by-hand.ts';
import { has } from './lib/run.ts';
import { compared, skipped, type Bound, type Row } from './lib/table.ts';
import { load, reads, subjectByHand, subjectOf, writes, type Subject } from './plain-work.ts';

const GOAL: Bound = { atLeast: 0.9 };

/** A topology, and its equivalent by hand. */
type Topology = {
  name: string;
  against: string;
  ours: Subject;
  byHand: Subject;
  /** Whether it accepts writes. */
  isWritable: boolean;
  bound: Bound;
};

type Made = { topologies: Topology[]; missing: Row[]; ends: (() => Promise<void>)[] };

/** Measures TPC-B and reads at each topology, in turn. */
export async function topologiesOn(context: Context, fileSystem: FileSystem): Promise<Row[]> {
  const { rounds, say } = context;
  const { name, directory } = fileSystem;
  const cloud = await openCloud(directory);
  const kit = await bareKit(cloud);
  const parts = [await replicated(cloud, kit, context), await pooled(cloud, kit, context)];
  const topologies = parts.flatMap((part) => part.topologies);
  say(`   ${topologies.length} topologies on ${name}`);
  const planned = [writes(context), reads(context)].flatMap((work, index) =>
    topologies
      .filter(({ isWritable }) => isWritable || index > 0)
      .map((topology) => ({
        work,
        topology,
        ours: measured(() => work.take(topology.ours)),
        byHand: measured(() => work.take(topology.byHand)),
      })),
  );
  await interleave(
    rounds,
    planned.flatMap(({ ours, byHand }) => [ours, byHand]),
  );
  for (const end of parts.flatMap(({ ends }) => ends)) await end();
  await cloud.end();
  return [
    ...planned.map(({ work, topology, ours, byHand }) =>
      rowOf(`${work.name}; ${topology.name}, ${name}`, topology, ours, byHand),
    ),
    ...parts.flatMap(({ missing }) => missing),
  ];
}

function rowOf(what: string, { against, bound }: Topology, ours: Case, byHand: Case): Row {
  return compared({
    goal: '',
    what,
    unit: 'tps',
    ours: valuesOf(ours),
    against,
    theirs: valuesOf(byHand),
    ratio: 'ours/theirs',
    bound,
    limit: 'the limits of the size; one more process on the way, which shares the processors',
  });
}

/** HA with an asynchronous and with a synchronous standby, and a read replica set of one node. */
async function replicated(cloud: Cloud, kit: BareKit, context: Context): Promise<Made> {
  if (!(await has('haproxy'))) {
    const why = 'HAProxy is missing: apt-get install haproxy';
    return { topologies: [], missing: [skipped('', 'HA and read replicas', why)], ends: [] };
  }
  const ends: (() => Promise<void>)[] = [];
  const topologies: Topology[] = [];
  for (const state of ['async', 'sync'] as const) {
    const service = await create(cloud, {
      replica_count: 1,
      sync_replica_count: state === 'sync' ? 1 : 0,
    });
    const pair = await startPair(kit, state);
    ends.push(pair.forget);
    const password = await passwordOf(pair.primary);
    const standby = state === 'sync' ? 'a synchronous standby' : 'an asynchronous standby';
    const ours = subjectOf(cloud, service);
    const byHand = subjectByHand(cloud, pair.primary, password);
    for (const subject of [ours, byHand]) await load(subject, context);
    topologies.push({
      name: `HA with ${standby}, through the gateway`,
      against: `a primary by hand with ${standby}`,
      ours,
      byHand,
      isWritable: true,
      bound: GOAL,
    });
    if (state === 'async') {
      const node = subjectByHand(cloud, pair.standby, password);
      topologies.push(await readReplicas(cloud, context, node));
    }
  }
  return { topologies, missing: [], ends };
}

async function passwordOf(server: BareServer): Promise<string> {
  const admin = await connectBare(server);
  const password = await setPassword(admin);
  admin.connection.stream.destroy();
  return password;
}

/** @param byHand a hot standby, whose primary is loaded */
async function readReplicas(cloud: Cloud, context: Context, byHand: Subject): Promise<Topology> {
  const service = await create(cloud);
  const primary = subjectOf(cloud, service);
  await load(primary, context);
  await ask(cloud, 'POST', `/services/${service.id}/replicaSets`, {
    name: 'readers',
    nodes: 1,
    cpu_millis: 500,
    memory_gbs: 2,
  });
  const port = await portOfSet(cloud, service.id);
  const ours = { ...primary, target: { ...primary.target, port } };
  for (const { target } of [ours, byHand]) await untilLoaded(cloud, target);
  return {
    name: 'a read replica set of one node, through its gateway',
    against: 'a hot standby by hand',
    ours,
    byHand,
    isWritable: false,
    bound: null,
  };
}

/** Waits until the read replica set of a service is active. */
async function portOfSet(cloud: Cloud, id: string): Promise<number> {
  for (;;) {
    const [set] = (await cloud.get(id)).read_replica_sets;
    if (set?.status === 'active') return set.endpoint.port;
    await sleep(20);
  }
}

/** Waits until a standby has replayed the load: pgbench makes the keys last. */
async function untilLoaded({ ca }: Cloud, { port, password }: Subject['target']): Promise<void> {
  const client = await connectOverTls(ca, port, password);
  const isThere = async (): Promise<boolean> => {
    const { rows } = await client.query(
      "select where to_regclass('pgbench_accounts_pkey') is not null",
    );
    return rows.length > 0;
  };
  while (!(await isThere())) await sleep(20);
  client.connection.stream.destroy();
}

/** The pooler by transaction. */
async function pooled(cloud: Cloud, kit: BareKit, context: Context): Promise<Made> {
  if (!(await has('pgbouncer')))
    return { topologies: [], missing: [skipped('', 'the pooler', PGBOUNCER_MISSING)], ends: [] };
  const service = await create(cloud, { enable_pooler: true });
  const port = (await cloud.get(service.id)).connection_pooler?.endpoint.port ?? 0;
  const server = await makeBare(kit, 'ours');
  const forget = atEnd(() => removeBare(kit, server));
  await startBare(kit, server);
  const password = await passwordOf(server);
  const { socket } = server.paths;
  const pooler = await poolerByHand(
    cloud,
    { socket, port: server.port, password },
    kit.machine.owner,
  );
  const through = (subject: Subject, poolerPort: number): Subject => ({
    ...subject,
    target: { ...subject.target, port: poolerPort, database: POOLED_DATABASE },
  });
  const [ours, byHand] = [subjectOf(cloud, service), subjectByHand(cloud, server, password)];
  for (const subject of [ours, byHand]) await load(subject, context);
  const topology: Topology = {
    name: 'the pooler by transaction',
    against: 'PgBouncer by hand',
    ours: through(ours, port),
    byHand: through(byHand, pooler.port),
    isWritable: true,
    bound: GOAL,
  };
  return { topologies: [topology], missing: [], ends: [pooler.end, forget] };
}
