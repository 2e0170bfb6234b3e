/**
 * A rehearsal of a failover or a switchover: a writer of ours goes through the service's endpoint as any client does, and what became of
 * its writes is counted. It writes into a schema of ours, which is gone afterwards.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { DATABASE_NAME } from '@howdah/contract';
import { Client } from 'pg';
import { isWildcard } from '../../config.ts';
import { scramVerifier } from '../../scram.ts';
import type { Endpoint } from '../engine.ts';
import type { InstancePaths } from './layout.ts';
import { controlConnection } from './monitor.ts';

export type Rehearsal = {
  /** Where a member's server is found; asked before and after. */
  primary: () => { paths: InstancePaths; port: number };
  endpoint: Endpoint;
  /** What is rehearsed; it may end before the service has another primary. */
  strike: () => Promise<void>;
};

/** As whom the probes are written. It is there while a drill goes on, and after one that was cut short. */
export const PROBE_ROLE = '_howdah_probe';
/** How long is written before the strike, and after the first write that succeeded again. */
const BEFORE_MS = 500;
const AFTER_MS = 300;
const DEADLINE_MS = 60_000;

type Ack = { id: number; atMs: number };

/** @returns for how long no write was acknowledged, and how many that were are lost, in words */
export async function rehearse({ primary, endpoint, strike }: Rehearsal): Promise<string> {
  const password = randomBytes(24).toString('base64url');
  const verifier = await scramVerifier(password);
  await asControl(primary(), async (client) => {
    await client.query(REMOVE);
    await client.query(`
      create schema _howdah;
      create table _howdah.probe (id integer primary key);
      create role ${PROBE_ROLE} login password '${verifier}';
      grant usage on schema _howdah to ${PROBE_ROLE};
      grant insert on _howdah.probe to ${PROBE_ROLE}`);
  });
  const host = isWildcard(endpoint.host) ? '127.0.0.1' : endpoint.host;
  const writer = startWriter({ ...endpoint, host }, password);
  try {
    await sleep(BEFORE_MS);
    const struckMs = performance.now();
    await strike();
    await firstAfter(writer, struckMs);
    await sleep(AFTER_MS);
  } finally {
    await writer.stop();
  }
  const { acks } = writer;
  const kept = await asControl(primary(), async (client) => {
    const { rows } = await client.query<{ id: number }>('select id from _howdah.probe');
    await client.query(REMOVE);
    return new Set(rows.map(({ id }) => id));
  });
  const lost = acks.filter(({ id }) => !kept.has(id)).length;
  const gapMs = Math.max(...acks.slice(1).map(({ atMs }, index) => atMs - (acks[index]?.atMs ?? atMs)));
  return `write gap ${Math.round(gapMs)} ms; ${lost} of ${acks.length} acknowledged probes lost`;
}

/** Takes away what a drill that was cut short has left. */
export async function sweepRehearsal(primary: ReturnType<Rehearsal['primary']>): Promise<void> {
  await asControl(primary, (client) => client.query(REMOVE));
}

const REMOVE = `
  drop schema if exists _howdah cascade;
  do $$ begin
    if exists (select from pg_roles where rolname = '${PROBE_ROLE}') then drop owned by ${PROBE_ROLE}; drop role ${PROBE_ROLE}; end if;
  end $$`;

async function asControl<T>({ paths, port }: ReturnType<Rehearsal['primary']>, use: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ ...controlConnection(paths, port, 'howdah drill'), database: DATABASE_NAME });
  client.on('error', () => undefined); // the statement under way is told
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

/** Waits until a write that began after a moment was acknowledged. */
async function firstAfter({ acks }: { acks: readonly Ack[] }, struckMs: number): Promise<void> {
  const before = acks.length;
  // The first one may have been on its way already, and been acknowledged by the primary that died.
  while ((acks.at(-1)?.atMs ?? 0) <= struckMs || acks.length < before + 2) {
    if (performance.now() - struckMs > DEADLINE_MS) throw new Error(`no write succeeded within ${DEADLINE_MS / 1000} s`);
    await sleep(5);
  }
}

/** Writes without pause, one number after the other, and notes each that was acknowledged: committed without a warning. */
function startWriter({ host, port }: Endpoint, password: string) {
  const acks: Ack[] = [];
  let next = 1;
  let stopping = false;
  let open: Client | null = null;

  const session = async (): Promise<void> => {
    const client = new Client({
      host,
      port,
      user: PROBE_ROLE,
      password,
      database: DATABASE_NAME,
      // The certificate is our own server's; who listens there is not what is rehearsed.
      ssl: { rejectUnauthorized: false },
      connectionTimeoutMillis: DEADLINE_MS,
    });
    open = client;
    let warned = false;
    client.on('error', () => undefined);
    client.on('notice', () => {
      warned = true;
    });
    try {
      await client.connect();
      while (!stopping) {
        const id = next++;
        warned = false;
        await client.query('insert into _howdah.probe values ($1)', [id]);
        if (!warned) acks.push({ id, atMs: performance.now() });
      }
    } catch {
      await sleep(2); // the server is gone: another session, through the same endpoint
    } finally {
      client.end().catch(() => undefined);
    }
  };
  const ended = (async () => {
    while (!stopping) await session();
  })();

  return {
    acks,
    stop: async (): Promise<void> => {
      stopping = true;
      // It may wait for a primary that does not come.
      open?.connection.stream.destroy();
      await ended;
    },
  };
}
