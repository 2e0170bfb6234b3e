/**
 * A load that writes numbers all the while and remembers which were acknowledged, and a sampler
 * that asks each member many times a second whether it accepts writes. Neither depends on the
 * reports of the control plane.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import { Client } from 'pg';
import { connectTo, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import {
  childrenOf,
  confOf,
  createLayout,
  findServer,
  type Layout,
  MEMBER,
  NODE,
  signal,
  waitedForOf,
} from './probe.ts';
import { during, until } from './until.ts';

export type ServiceAccess = Service & { initial_password: string };

export const layoutOf = (cloud: Pick<Installation, 'home'>): Layout =>
  createLayout(join(cloud.home, 'data'));

/** The pid of a member's postmaster. */
export async function postmasterOf(
  cloud: Pick<Installation, 'home'>,
  service: Pick<Service, 'service_id'>,
  n: number,
): Promise<number> {
  const server = await findServer(layoutOf(cloud).member(service.service_id, n));
  if (server === null) throw new Error(`member ${n} of ${service.service_id} does not run`);
  return server.postmaster.pid;
}

/** A process of a member by what it calls itself, like "walreceiver". */
export async function backendOf(postmaster: number, title: string): Promise<number> {
  for (const pid of await childrenOf(postmaster)) {
    if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(title)) return pid;
  }
  throw new Error(`no ${title} below ${postmaster}`);
}

/**
 * Writes without pause into the service's own table. A number is acknowledged when its commit came
 * back without a warning; whether one is there whose session broke nobody knows.
 */
export async function startLoad(cloud: Installation, service: ServiceAccess) {
  const setup = await connectTo(cloud, service, service.initial_password);
  await setup.query('create table if not exists load (n integer primary key)');
  const before =
    (await setup.query<{ n: number | null }>('select max(n) as n from load')).rows[0]?.n ?? 0;
  await setup.end();
  const acknowledged: { n: number; atMs: number }[] = [];
  const refused: string[] = [];
  let next = before + 1;
  let stopping = false;

  const session = async (): Promise<void> => {
    let client: Client;
    try {
      client = await connectTo(cloud, service, service.initial_password);
    } catch (error) {
      refused.push(messageOf(error));
      return;
    }
    let warned = false;
    client.on('notice', () => {
      warned = true;
    });
    try {
      while (!stopping) {
        const n = next++;
        warned = false;
        await client.query('insert into load values ($1)', [n]);
        if (!warned) acknowledged.push({ n, atMs: performance.now() });
      }
      await client.end();
    } catch {
      client.connection.stream.destroy(); // its server is gone: another session
    }
  };
  const ended = during(() => !stopping, session);

  return {
    acknowledged,
    /** Why new sessions could not begin. */
    refused,
    /** Waits until a write was acknowledged that began after now. */
    goesOn: async (): Promise<void> => {
      const from = next;
      await until('a new write is acknowledged', () => (acknowledged.at(-1)?.n ?? 0) > from);
    },
    /** The longest time without an acknowledged write since a moment, in ms. */
    longestGapMs: (sinceMs: number): number => {
      const times = [
        sinceMs,
        ...acknowledged.map(({ atMs }) => atMs).filter((atMs) => atMs >= sinceMs),
      ];
      return Math.max(0, ...times.slice(1).map((atMs, index) => atMs - (times[index] ?? atMs)));
    },
    /** Ends it. @returns the acknowledged numbers that are not there */
    stop: async (): Promise<number[]> => {
      stopping = true;
      await ended;
      const client = await connectTo(cloud, service, service.initial_password);
      const there = new Set(
        (await client.query<{ n: number }>('select n from load')).rows.map(({ n }) => n),
      );
      await client.end();
      return acknowledged.filter(({ n }) => !there.has(n)).map(({ n }) => n);
    },
  };
}

/** A server that has not answered by then does not count: it hangs. */
const ANSWER_MS = 200;

/** The servers wait before they answer, so that the sampler takes little of the processors. */
const ACCEPTS_WRITES = 'select not pg_is_in_recovery() as accepting from pg_sleep(0.02)';

/** Asks every member each 20 ms whether it accepts writes. */
export function startSampler(cloud: Installation, service: Pick<Service, 'service_id'>) {
  const layout = layoutOf(cloud);
  const clients = new Map<number, Client>();
  const violations: string[] = [];
  let samples = 0;
  let stopping = false;

  const ask = async (n: number): Promise<boolean> => {
    const paths = layout.member(service.service_id, n);
    const pidFile = join(paths.data, 'postmaster.pid');
    try {
      let client = clients.get(n);
      if (client === undefined) {
        if (!existsSync(pidFile)) return false;
        const port = Number(readFileSync(pidFile, 'utf8').split('\n')[3]);
        client = new Client({
          host: paths.socket,
          port,
          user: 'howdah',
          database: 'postgres',
          connectionTimeoutMillis: ANSWER_MS,
          query_timeout: ANSWER_MS,
        });
        client.on('error', () => undefined);
        const fresh = client;
        client.once('end', () => clients.get(n) === fresh && clients.delete(n));
        await client.connect();
        clients.set(n, client);
      }
      const { rows } = await client.query<{ accepting: boolean }>(ACCEPTS_WRITES);
      return rows[0]?.accepting === true;
    } catch {
      return false; // the member does not run, or hangs
    }
  };

  const ended = during(
    () => !stopping,
    async () => {
      const answers = await Promise.all([0, 1, 2].map(ask));
      samples += 1;
      const writers = answers.flatMap((writes, n) => (writes ? [n] : []));
      if (writers.length > 1)
        violations.push(
          `members ${writers.join(' and ')} accept writes at ${new Date().toISOString()}`,
        );
    },
  );

  return {
    violations,
    samples: () => samples,
    stop: async (): Promise<string[]> => {
      stopping = true;
      await ended;
      for (const client of clients.values()) client.connection.stream.destroy();
      return violations;
    },
  };
}

/** A session with a primary that accepts writes, as soon as there is one. */
export async function untilConnected(
  cloud: Pick<Installation, 'caPem'>,
  service: ServiceAccess,
): Promise<Client> {
  return until('a primary accepts writes', async () => {
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('select txid_current()');
    return client;
  });
}

/** Waits until a member is the primary. */
export async function untilPrimary(
  cloud: Installation,
  service: Pick<Service, 'service_id'>,
  n: number,
): Promise<void> {
  await until(
    `member ${n} is the primary`,
    () => layoutOf(cloud).primaryOf(service.service_id) === n,
  );
}

/**
 * Waits until all members but the primary follow it, and so many as are waited for are certain to
 * have all that was acknowledged. @param nodes of read replica sets that follow it too, at least
 */
export async function untilRedundant(
  cloud: Installation,
  service: ServiceAccess,
  replicas: number,
  sync: number,
  nodes = 0,
): Promise<void> {
  const layout = layoutOf(cloud);
  await until(`${replicas} standbys and ${nodes} nodes follow, ${sync} synchronously`, async () => {
    const paths = layout.member(service.service_id, layout.primaryOf(service.service_id));
    const port = Number(readFileSync(join(paths.data, 'postmaster.pid'), 'utf8').split('\n')[3]);
    const client = new Client({ host: paths.socket, port, user: 'howdah', database: 'postgres' });
    client.on('error', () => undefined);
    await client.connect();
    const { rows } = await client.query<{ standbys: number; nodes: number; sync: number }>(
      `select (count(*) filter (where starts_with(application_name, '${MEMBER}')))::int as standbys,
              (count(*) filter (where starts_with(application_name, '${NODE}')))::int as nodes,
              (count(*) filter (where sync_state = 'quorum'))::int as sync
       from pg_stat_replication where state = 'streaming'`,
    );
    await client.end();
    const [row] = rows;
    const { before } = waitedForOf(await confOf(paths));
    const isFollowed = row?.standbys === replicas && row.nodes >= nodes && row.sync >= sync;
    if (!isFollowed || before.length > 0) throw new Error(JSON.stringify({ ...row, before }));
    const { status } = await cloud.get(service.service_id);
    if (status !== 'READY') throw new Error(`the service is ${status}`);
    return true;
  });
}

/** Kills the primary's postmaster. @returns the member that it was */
export async function killPrimary(
  cloud: Installation,
  service: Pick<Service, 'service_id'>,
): Promise<number> {
  // In the middle of a switchover there is none for a moment.
  return until('the primary runs', async () => {
    const n = layoutOf(cloud).primaryOf(service.service_id);
    const server = await findServer(layoutOf(cloud).member(service.service_id, n));
    if (server === null) return null;
    signal(server.postmaster.pid, 'SIGKILL');
    return n;
  });
}
