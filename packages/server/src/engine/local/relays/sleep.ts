/** Puts servers to sleep that nobody uses, and says what keeps the others awake. */
import { messageOf } from '@howdah/contract/thrown';
import type { Client } from 'pg';
import { EngineUnavailable } from '../../engine.ts';
import type { Holder, Sleeping } from '../../sleep.ts';
import type { Local } from '../local.ts';
import { portOf } from '../primary-session.ts';
import { findServer } from '../postgres/server.ts';
import { CONTROL_ROLE } from '../../postgres/roles.ts';
import { READER_ROLE } from '../../statements/session.ts';
import { withSuperuserSession } from '../../postgres/sessions/superuser.ts';
import { stopInstance } from '../topology/start-stop.ts';

/**
 * How long a checkpoint may take. A shutdown that writes as much would keep clients waiting until
 * they are refused, or end in SIGKILL.
 */
const CHECKPOINT_MS = 60_000;

export function createSleeping(local: Local): Sleeping {
  const { machine, topology } = local;
  const { relays } = topology.executor;
  return {
    awake: async () => {
      const views = await relays.list().catch(refuse);
      return new Map(
        views
          .filter(({ state }) => state !== 'asleep')
          .map(({ id, state, clients, idleMs }) => [
            id,
            state === 'awake' && clients === 0 ? idleMs : null,
          ]),
      );
    },
    prepare: (id) =>
      inServer(local, id, CHECKPOINT_MS, async (session) => {
        if ((await findHolders(session)).length > 0) return false;
        await session.query('checkpoint');
        return true;
      }),
    fallAsleep: async ({ id }, idleMs) => {
      const paths = machine.layout.service(id);
      const server = await findServer(paths);
      if (server === null || (await holdersOf(local, id)).length > 0) return false;
      const turn = await relays.hold(id, idleMs);
      if (turn === null) return false;
      await stopInstance(topology.executor, id, paths, server, 'fast');
      return relays.sleep(id, turn);
    },
    holders: async (id) => {
      const [holders, clients] = await Promise.all([
        holdersOf(local, id),
        relays.clients(id).catch(refuse),
      ]);
      const addresses = new Map(clients.map(({ serverPort, address }) => [serverPort, address]));
      return holders.map(({ port, ...holder }) => ({
        ...holder,
        address: (port === null ? null : addresses.get(port)) ?? holder.address,
      }));
    },
  };
}

/** `port`: by which the relay's side of a session is known. */
type Found = Holder & { port: number | null };

/** Names, statements and states are input of tenants, and come as values only. */
const HOLDERS = `
  select 'session' as kind, application_name as name, usename::text as user,
      datname::text as database,
      host(client_addr) as address, client_port as port, backend_start as since, state,
      coalesce(query ~* '^\\s*listen\\s', false) as listens
    from pg_catalog.pg_stat_activity
    where backend_type = 'client backend' and usename <> all ($1::text[])
  union all
  -- Work of ours: not this session, the monitor, nor one that waits for a statement of users.
  select 'worker', application_name, null, datname::text, null, null, backend_start, state, false
    from pg_catalog.pg_stat_activity
    where backend_type in ('client backend', 'walsender') and usename = any ($1::text[])
      and pid <> pg_catalog.pg_backend_pid() and application_name <> 'howdah'
      and (usename <> '${READER_ROLE}' or state <> 'idle')
  union all
  select case backend_type when 'autovacuum worker' then 'autovacuum' else 'worker' end,
      backend_type, usename::text, datname::text, null, null, backend_start, state, false
    from pg_catalog.pg_stat_activity
    where backend_type = 'autovacuum worker' or backend_type <> all ($2::text[])
  union all
  select 'prepared_transaction', gid, owner::text, database::text, null, null, prepared, null, false
    from pg_catalog.pg_prepared_xacts
  union all
  select 'replication_slot', slot_name::text, null, database::text, null, null, null, null, false
    from pg_catalog.pg_replication_slots
  limit 100`;
/** Sessions of ours. */
const OURS = [CONTROL_ROLE, READER_ROLE];
/** Processes that every server has, and those of sessions, which are counted as such. */
const USUAL_BACKENDS = [
  'client backend',
  'parallel worker',
  'autovacuum launcher',
  'autovacuum worker',
  'logical replication launcher',
  'background writer',
  'checkpointer',
  'walwriter',
  'archiver',
  'startup',
  'walreceiver',
  'walsender',
  'walsummarizer',
  'io worker',
  'slotsync worker',
  'standalone backend',
];

const holdersOf = (local: Local, id: string): Promise<Found[]> =>
  inServer(local, id, undefined, findHolders);

async function findHolders(session: Client): Promise<Found[]> {
  const { rows } = await session.query<Omit<Found, 'since'> & { since: Date | null }>(HOLDERS, [
    OURS,
    USUAL_BACKENDS,
  ]);
  return rows.map((row) => ({ ...row, since: row.since?.toISOString() ?? null }));
}

/** @param limitMs of a statement; undefined: as usual @throws EngineUnavailable */
async function inServer<T>(
  { machine }: Local,
  id: string,
  limitMs: number | undefined,
  use: (session: Client) => Promise<T>,
): Promise<T> {
  const paths = machine.layout.service(id);
  try {
    const where = { server: paths, port: await portOf(paths), name: 'howdah sleep' };
    const limited = limitMs === undefined ? where : { ...where, limitMs };
    return await withSuperuserSession(limited, use);
  } catch (error) {
    return refuse(error);
  }
}

/** @throws EngineUnavailable */
function refuse(error: unknown): never {
  const reason = messageOf(error);
  throw new EngineUnavailable(reason, { cause: error });
}
