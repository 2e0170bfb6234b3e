/**
 * A rehearsal of a failover or a switchover: a writer of ours goes through the service's endpoint
 * as any client does, and what became of its writes is counted. It writes into the maintenance
 * database, which pg_hba.conf opens for its role alone: a tenant can neither prepare its table nor
 * lock it.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { scramVerifier } from '../../../lib/scram.ts';
import type { Endpoint } from '../../spec.ts';
import { MAINTENANCE_DATABASE, PROBE_ROLE } from '../roles.ts';
import { withSuperuserSession } from '../sessions/superuser.ts';
import type { SocketPlace } from '../server-files.ts';

export type Rehearsal = {
  /** Where a member's server is found; asked before and after. */
  primary: () => { paths: SocketPlace; port: number };
  /** Where its clients reach it. */
  endpoint: Endpoint;
  /** The failure that is rehearsed; it may end before the service has another primary. */
  injectFault: () => Promise<void>;
};

/**
 * In SQL: what of the probes' role there is. It stays when a drill has ended, without a login: DROP
 * ROLE would wait for each transaction that grants it something. A role with members is a tenant's:
 * who creates a role becomes its member.
 */
const GOVERNED =
  'exists (select from pg_auth_members m join pg_roles r on r.oid = m.roleid where ' +
  `r.rolname = '${PROBE_ROLE}')`;
/** In SQL: whether a drill is running, or an interrupted one has left something. */
export const REHEARSED =
  `(exists (select from pg_roles where rolname = '${PROBE_ROLE}' and rolcanlogin) ` +
  `and not ${GOVERNED})`;
/** Commits of a writer that is gone still hold their locks while they wait for a standby. */
const SWEEP = [
  `select pg_terminate_backend(pid) from pg_stat_activity where usename = '${PROBE_ROLE}'`,
  'drop schema if exists _howdah cascade',
];
/**
 * How long the drill writes before the injectFault, and after the first write that succeeded again.
 */
const BEFORE_MS = 500;
const AFTER_MS = 300;
const DEADLINE_MS = 60_000;

type Ack = { id: number; atMs: number };

/** @returns for how long no write was acknowledged, and how many that were are lost, in words */
export async function rehearse({ primary, endpoint, injectFault }: Rehearsal): Promise<string> {
  const password = randomBytes(24).toString('base64url');
  const verifier = await scramVerifier(password);
  await asControl(primary(), (client) => prepare(client, verifier));
  const writer = startWriter(endpoint, password);
  try {
    await sleep(BEFORE_MS);
    const injectedMs = performance.now();
    await injectFault();
    await firstAfter(writer, injectedMs);
    await sleep(AFTER_MS);
  } finally {
    await writer.stop();
  }
  const { acks } = writer;
  const kept = await asControl(primary(), async (client) => {
    const { rows } = await client.query<{ id: number }>('select id from _howdah.probe');
    return new Set(rows.map(({ id }) => id));
  });
  // The rest is removed when the missing standby is back.
  await sweepRehearsal(primary()).catch(() => undefined);
  const lost = acks.filter(({ id }) => !kept.has(id)).length;
  const gapMs = Math.max(
    ...acks.slice(1).map(({ atMs }, index) => atMs - (acks[index]?.atMs ?? atMs)),
  );
  return `write gap ${Math.round(gapMs)} ms; ${lost} of ${acks.length} acknowledged probes lost`;
}

/** Takes away what a drill has left. */
export async function sweepRehearsal(primary: ReturnType<Rehearsal['primary']>): Promise<void> {
  await asControl(primary, async (client) => {
    for (const statement of SWEEP) await client.query(statement);
    await client.query(`alter role ${PROBE_ROLE} nologin password null`);
  });
}

/** @throws Error when a user of the service has made a role of the probes' name */
async function prepare(client: Client, verifier: string): Promise<void> {
  const { rows } = await client.query<{ role: boolean; governed: boolean }>(
    `select exists (select from pg_roles where rolname = '${PROBE_ROLE}') ` +
      `as role, ${GOVERNED} as governed`,
  );
  const [found] = rows;
  if (found?.governed === true)
    throw new Error(
      `the service has a role ${PROBE_ROLE} that one of its users made; ` +
        `drills need the name: drop role ${PROBE_ROLE}`,
    );
  for (const statement of SWEEP) await client.query(statement);
  await client.query(`
    ${found?.role === true ? '' : `create role ${PROBE_ROLE};`}
    alter role ${PROBE_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls
      connection limit -1 password '${verifier}' valid until 'infinity';
    alter role ${PROBE_ROLE} reset all;
    alter role ${PROBE_ROLE} in database ${MAINTENANCE_DATABASE} reset all;
    grant connect on database ${MAINTENANCE_DATABASE} to ${PROBE_ROLE};
    create schema _howdah;
    create table _howdah.probe (id integer primary key);
    grant usage on schema _howdah to ${PROBE_ROLE};
    grant insert on _howdah.probe to ${PROBE_ROLE}`);
}

function asControl<T>(
  { paths, port }: ReturnType<Rehearsal['primary']>,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  return withSuperuserSession({ server: paths, port, name: 'howdah drill' }, use);
}

/** Waits until a write that began after a moment was acknowledged. */
async function firstAfter({ acks }: { acks: readonly Ack[] }, sinceMs: number): Promise<void> {
  const before = acks.length;
  // The first one may have been on its way already, and been acknowledged by the primary that died.
  while ((acks.at(-1)?.atMs ?? 0) <= sinceMs || acks.length < before + 2) {
    if (performance.now() - sinceMs > DEADLINE_MS)
      throw new Error(`no write succeeded within ${DEADLINE_MS / 1000} s`);
    await sleep(5);
  }
}

/**
 * Writes without pause, one number after the other, and notes each that was acknowledged: committed
 * without a warning.
 */
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
      database: MAINTENANCE_DATABASE,
      // The certificate is our own server's; a drill does not test it.
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
      // The connection may wait for a primary that does not come.
      open?.connection.stream.destroy();
      await ended;
    },
  };
}
