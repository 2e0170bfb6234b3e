/**
 * G7, G8, G9: how long a client cannot write when the primary of a synchronous pair is killed or
 * stopped, against promotion by hand.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createLayout } from '../packages/server/src/engine/local/host/layout.ts';
import { childrenOf, signal } from '../packages/server/src/lib/processes.ts';
import { findServer } from '../packages/server/src/engine/local/postgres/server.ts';
import {
  AUTO_FAILOVER_MISSING,
  autoFailoverMajor,
  killNode,
  partsOfFailover,
  reviveNode,
  startAutoFailover,
  tune,
  untilPaired,
  type AutoFailover,
} from './lib/auto-failover.ts';
import { bareKit, connectBare, type BareKit } from './lib/bare.ts';
import type { Bench } from './lib/bench.ts';
import {
  connectOverTls,
  create,
  LOOPBACK,
  openCloud,
  remove,
  type Cloud,
  type Service,
} from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import {
  idle,
  interleave,
  measured,
  partOf,
  partsInWords,
  stopwatch,
  valuesOf,
  type Sample,
} from './lib/measure.ts';
import { follows, startPair } from './lib/pair-by-hand.ts';
import { bounded, compared, skipped, type Row } from './lib/table.ts';

export const failover: Bench = {
  name: 'failover',
  title: 'G7, G8, G9: writes are not possible while another member takes over; redundant again',
  run: async ({ here, loop, rounds }) => {
    const rows: Row[] = [];
    for (const kind of ['xfs', 'btrfs'] as const) {
      const found = await loop(kind);
      if (typeof found === 'string') rows.push(skipped('G7', `failover on ${kind}`, found));
      else rows.push(...(await measureOn(found, kind, rounds)));
    }
    rows.push(...(await measureAgainstPeer(here, rounds)));
    return rows;
  },
};

async function measureOn(fileSystem: FileSystem, kind: string, rounds: number): Promise<Row[]> {
  const cloud = await openCloud(fileSystem.directory, { HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0' });
  const kit = await bareKit(cloud);
  const service = await createWithTable(cloud);
  const killed = measured(() => injectFault(cloud, service, 'SIGKILL'));
  const stopped = measured(() => injectFault(cloud, service, 'SIGSTOP'));
  const byHand = measured(() => failOverByHand(kit));
  const pairOfOurs = measured(() => createPair(cloud));
  const pairByHand = measured(() => makePair(kit));
  await interleave(rounds, [byHand, killed, pairByHand, pairOfOurs]);
  await interleave(Math.min(rounds, 10), [stopped]);
  await cloud.end();
  const floor = { ...valuesOf(byHand) };
  return [
    compared({
      goal: 'G7',
      what:
        `${kind}: kill -9 of the primary → write accepted over a new TLS ` +
        'session through the gateway',
      unit: 'ms',
      ours: valuesOf(killed),
      against: 'pg_promote(false) at once on an open connection, write retried each ms',
      theirs: floor,
      ratio: 'ours/theirs',
      bound: { atMost: 2.5 },
      limit: `ms: ${partsInWords(killed)}`,
    }),
    bounded({
      goal: 'G8',
      what: `${kind}: SIGSTOP of the primary, heartbeat 1 s → write accepted`,
      unit: 'ms',
      ours: valuesOf(stopped),
      bound: { atMost: 1200 },
      limit: 'nothing but silence tells of a process that was stopped',
    }),
    compared({
      goal: 'G9',
      what: `${kind}: kill -9 → the old primary follows synchronously again`,
      unit: 'ms',
      ours: partOf(killed, 'redundant again'),
      against: 'a standby by hand: clone, start, streaming',
      theirs: partOf(pairByHand, 'standby'),
      ratio: 'ours/theirs',
      bound: { atMost: 3, plus: 100 },
      limit: 'the failover, and a clone of the new primary',
    }),
    compared({
      goal: 'G9',
      what: `${kind}: a pair from nothing: POST → READY`,
      unit: 'ms',
      ours: valuesOf(pairOfOurs),
      against: 'a pair by hand, streaming',
      theirs: valuesOf(pairByHand),
      ratio: 'ours/theirs',
      bound: { atMost: 1.5 },
      limit: 'the gateway is a program more to start',
    }),
  ];
}

/** The fault at the peer's primary, and the settings by which the peer notices it. */
const FAULTS = [
  {
    victim: 'node',
    settings: 'defaults',
    why: '20 s without a report, then 30 s for the old primary to stop',
  },
  { victim: 'node', settings: 'tuned', why: 'its keepers report and are told once a second' },
  {
    victim: 'server',
    settings: 'defaults',
    why: 'a restarted primary waits for its standby, which tries each 5 s',
  },
  { victim: 'server', settings: 'tuned', why: 'the restart, or a failover that begins meanwhile' },
] as const;
type Fault = (typeof FAULTS)[number];

const VICTIMS = {
  node: 'with its keeper, so that the standby takes over',
  server: 'whose keeper starts it again',
};

/**
 * The same kill against pg_auto_failover. Its waits take seconds on any file system: one is enough.
 */
async function measureAgainstPeer({ name, directory }: FileSystem, rounds: number): Promise<Row[]> {
  const major = await autoFailoverMajor();
  if (major === null)
    return [skipped('G7', `failover on ${name} against pg_auto_failover`, AUTO_FAILOVER_MISSING)];
  const cloud = await openCloud(directory, { HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0' });
  const kit = await bareKit(cloud);
  const service = await createWithTable(cloud);
  const { peer, end } = await startAutoFailover(kit, major);
  const ours = measured(() => injectFault(cloud, service, 'SIGKILL'));
  const theirs = FAULTS.map((one) => ({
    ...one,
    samples: measured(() => injectIntoPeer(kit, peer, one)),
  }));
  await interleave(rounds, [ours, ...theirs.map(({ samples }) => samples)]);
  await end();
  await cloud.end();
  return theirs.map(({ victim, settings, why, samples: taken }) => {
    const n = taken.samples.length;
    const restarted = taken.samples.filter(({ parts }) => !('seen' in parts)).length;
    const others = restarted === n ? '' : `; ms of the others: ${partsInWords(taken)}`;
    return compared({
      goal: 'G7',
      what: `${name}: kill -9 of the primary → write accepted over a new TLS session`,
      unit: 'ms',
      ours: valuesOf(ours),
      against:
        `pg_auto_failover, PostgreSQL ${major}, ${settings}: ` +
        `kill -9 of the primary, ${VICTIMS[victim]}`,
      theirs: valuesOf(taken),
      ratio: 'theirs/ours',
      bound: null,
      limit:
        `of the peer: ${why}; ${restarted} of ${n} writes taken by the old primary, ` +
        `restarted in place${others}`,
    });
  });
}

/**
 * Clients of the peer know both nodes. The pause between their attempts: a session with a standby
 * costs both of them some ms, and would slow down what is measured.
 */
const PEER_RETRY_MS = 20;

async function injectIntoPeer(
  kit: BareKit,
  peer: AutoFailover,
  { victim, settings }: Fault,
): Promise<Sample> {
  await tune(kit, peer, settings);
  await untilPaired(peer);
  await idle();
  const primary = await untilPaired(peer);
  const begunMs = Date.now();
  const watch = stopwatch();
  await killNode(primary, victim);
  const ports = peer.pair.map(({ port }) => port);
  const port = await firstWrite(kit.ca, ports, peer.password, PEER_RETRY_MS);
  const { value } = watch.sample();
  const parts = port === primary.port ? {} : await partsOfFailover(peer, begunMs, value);
  if (victim === 'node') reviveNode(kit, peer, primary);
  // A keeper reports once a second: one that started its server again may hear
  // of a failover only now.
  await sleep(2000);
  await untilPaired(peer);
  return { value, parts };
}

/** A synchronous pair with the table that {@link firstWrite} writes to. */
export async function createWithTable(
  cloud: Cloud,
  body: object = {},
  host = LOOPBACK,
): Promise<Service> {
  const service = await create(cloud, { ...body, replica_count: 1, sync_replica_count: 1 });
  const client = await connectOverTls(cloud.ca, service.port, service.password, host);
  await client.query('create table t (n int)');
  await client.end();
  return service;
}

/** Kills or stops the primary of a pair on this machine, until another one takes a write. */
export async function injectFault(
  cloud: Cloud,
  service: Service,
  name: 'SIGKILL' | 'SIGSTOP',
): Promise<Sample> {
  const layout = createLayout(join(cloud.home, 'data'));
  await untilSynchronous(cloud, service);
  await idle();
  const primary = layout.primaryOf(service.id);
  const server = await findServer(layout.member(service.id, primary));
  if (server === null) throw new Error('the primary does not run');
  const { pid } = server.postmaster;
  const victims = name === 'SIGSTOP' ? [pid, ...(await childrenOf(pid))] : [pid];
  const watch = stopwatch();
  for (const victim of victims) signal(victim, name);
  // A killed primary may acknowledge for some ms more: only sessions at the new primary count.
  while (layout.primaryOf(service.id) === primary) await sleep(1);
  watch.lap('seen, fenced, recorded');
  await firstWrite(cloud.ca, [service.port], service.password, 2);
  watch.lap('promoted, session, write');
  const { value } = watch.sample();
  await untilSynchronous(cloud, service);
  watch.lap('then synchronous');
  const { parts } = watch.sample();
  return { value, parts: { ...parts, 'redundant again': watch.sample().value } };
}

/**
 * Tries each port in turn until a write is acknowledged, as libpq does with several hosts and
 * target_session_attrs=read-write: a standby refuses the write.
 *
 * @returns the port of the server that acknowledged it
 */
export async function firstWrite(
  ca: string,
  ports: readonly number[],
  password: string,
  retryMs: number,
  host = LOOPBACK,
): Promise<number> {
  for (;;) {
    for (const port of ports) {
      try {
        const client = await connectOverTls(ca, port, password, host);
        try {
          await client.query('insert into t values (1)');
          return port;
        } finally {
          client.connection.stream.destroy();
        }
      } catch {
        // not this one, or not yet
      }
    }
    await sleep(retryMs);
  }
}

async function untilSynchronous(cloud: Cloud, service: Service): Promise<void> {
  const layout = createLayout(join(cloud.home, 'data'));
  for (;;) {
    try {
      const n = layout.primaryOf(service.id);
      const port = (await findServer(layout.member(service.id, n)))?.port ?? 0;
      const client = await connectBare({
        paths: layout.member(service.id, n),
        port,
        process: null,
      });
      try {
        while (!(await follows(client, 'quorum'))) await sleep(5);
        return;
      } finally {
        client.connection.stream.destroy();
      }
    } catch {
      await sleep(5);
    }
  }
}

async function createPair(cloud: Cloud): Promise<number> {
  const begun = performance.now();
  const service = await create(cloud, { replica_count: 1, sync_replica_count: 1 });
  const ms = performance.now() - begun;
  await remove(cloud, service.id);
  return ms;
}

async function makePair(kit: BareKit): Promise<Sample> {
  const { sample, forget } = await startPair(kit, 'sync');
  await forget();
  return sample;
}

async function failOverByHand(kit: BareKit): Promise<number> {
  const { primary, standby, forget } = await startPair(kit, 'sync');
  const writer = await connectBare(primary);
  await writer.query('create table t (n int)');
  const admin = await connectBare(standby);
  await idle();
  const begun = performance.now();
  primary.process?.kill('SIGKILL');
  await admin.query('select pg_promote(false)');
  for (;;) {
    try {
      await admin.query('insert into t values (1)');
      break;
    } catch {
      await sleep(1);
    }
  }
  const ms = performance.now() - begun;
  admin.connection.stream.destroy();
  writer.connection.stream.destroy();
  await forget();
  return ms;
}
