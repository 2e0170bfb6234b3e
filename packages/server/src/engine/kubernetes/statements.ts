/**
 * Runs statements that users send through the API, at the endpoints of services. The control plane
 * has no superuser here: CloudNativePG makes the role, and a session of the same role ends those
 * that do not end by themselves (docs/decisions/0058-statements-on-kubernetes.md).
 */
import { isIP } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseError, type Client } from 'pg';
import { Type } from 'typebox';
import { ADMIN_ROLE, DATABASE_NAME, type QueryResult } from '@howdah/contract';
import { EngineUnavailable, StatementRefused, type ReadStatement } from '../engine.ts';
import {
  MAX_STATEMENTS,
  READER_ROLE,
  whyTaken,
  FULL_OF_STATEMENTS,
  openSession,
  FULL_WAIT_MS,
  SESSION_DEADLINE_MS,
  type StatementServer,
  CAN_WRITE,
} from '../statements/session.ts';
import { beginReading, runStatement } from '../statements/run.ts';
import { KINDS } from './api/kinds.ts';
import { readerSecret } from './names.ts';
import type { Region } from './region/region.ts';
import { askChallenge } from './network/challenge.ts';
import { placesIn } from './cluster/objects.ts';
import { endpointOf } from './network/routes.ts';
import { NO_ANSWER, throwUnavailable } from './api/errors.ts';

export type Statements = ReturnType<typeof createStatements>;

export function createStatements(region: Region) {
  const open = new Set<Client>();
  const enter = createPlaces();
  return {
    /** @throws EngineUnavailable, StatementRefused */
    run: async (id: string, statement: ReadStatement): Promise<QueryResult> => {
      const leave = await enter(id);
      const ends: Promise<void>[] = [];
      try {
        const server = await serverOf(region, id, statement.database);
        const { client, address } = await begin(server, statement.timeoutMs);
        const terminate = (pid: number): Promise<void> => {
          const end = terminateAt(server, pid, address);
          ends.push(end);
          return end;
        };
        open.add(client);
        try {
          return await runStatement(client, { ...server, terminate }, statement);
        } finally {
          open.delete(client);
          // Not `end()`, which would wait for a server that may hang.
          client.connection.stream.destroy();
        }
      } finally {
        // A statement that ignores its end has its place until it is ended: there is always a
        // session left that ends it.
        void Promise.allSettled(ends).then(leave);
      }
    },
    close: (): void => open.forEach((client) => client.connection.stream.destroy()),
  };
}

/** How soon something that is waited for is looked at again. */
const POLL_MS = 20;

/** @returns a function that waits for a place of a service, and returns how that is left */
function createPlaces() {
  const taken = new Map<string, number>();
  return async (id: string): Promise<() => void> => {
    for (const begunMs = performance.now(); ; await sleep(POLL_MS)) {
      const count = taken.get(id) ?? 0;
      if (count < MAX_STATEMENTS) {
        taken.set(id, count + 1);
        return () => {
          const left = (taken.get(id) ?? 1) - 1;
          if (left === 0) taken.delete(id);
          else taken.set(id, left);
        };
      }
      if (performance.now() - begunMs > FULL_WAIT_MS)
        throw new EngineUnavailable(FULL_OF_STATEMENTS);
    }
  };
}

const PASSWORD = Type.Object({ data: Type.Object({ password: Type.String() }) });

/**
 * The server at the endpoint of a service, with the password of the role. @throws EngineUnavailable
 */
export async function serverOf(
  region: Region,
  id: string,
  database = DATABASE_NAME,
): Promise<StatementServer> {
  const { cache, kube, settings, authority } = region;
  const cluster = cache.cluster(id);
  const endpoint = cluster === null ? null : endpointOf(settings, cluster);
  if (cluster?.projectId == null || endpoint === null)
    throw new EngineUnavailable(cache.staleWhy() === null ? 'it has no Cluster' : NO_ANSWER);
  // The role of a set is that of its service.
  const owner = cluster.desired?.set?.parent ?? id;
  const place = placesIn(cluster.projectId)(KINDS.secret, readerSecret(owner));
  const secret = await kube.get(place, PASSWORD).catch(throwUnavailable);
  if (secret === null) throw new EngineUnavailable(NOT_MADE);
  const password = Buffer.from(secret.data.password, 'base64').toString('utf8');
  const ssl = { ca: authority.certificatePem, rejectUnauthorized: true };
  const server: StatementServer = {
    config: async () => ({ ...endpoint, database, password, ssl }),
    terminate: (pid) => terminateAt(server, pid, null),
    answers: () =>
      askChallenge(endpoint, authority.certificatePem).then(
        () => true,
        () => false,
      ),
  };
  return server;
}

/** Sessions of which one reaches a certain node of a set: hardly ever none does. */
const TRIES = 40;

/**
 * Ends a session. The endpoint of a set connects to any of its nodes, where another session may
 * have the number of the process.
 *
 * @param address of the server that has the session; null: any
 */
async function terminateAt(
  server: StatementServer,
  pid: number,
  address: string | null,
): Promise<void> {
  const end = `pg_catalog.pg_terminate_backend(${pid})`;
  const isThere =
    address === null || isIP(address) === 0
      ? 'true'
      : `pg_catalog.host(pg_catalog.inet_server_addr()) operator(pg_catalog.=) '${address}'`;
  for (let tries = TRIES; tries > 0; tries -= 1) {
    const client = await openSession(server, SESSION_DEADLINE_MS);
    const sql = `${isThere} as "isThere", case when ${isThere} then ${end} end`;
    const answer = await beginReading<{ isThere: boolean }>(client, server, sql);
    client.connection.stream.destroy();
    if (answer?.isThere === true) return;
  }
}

const WRONG_PASSWORD = '28P01';
const LOGIN_AGAIN_MS = 200;
const NOT_MADE =
  `CloudNativePG has not made its role ${READER_ROLE} yet, which statements need; if that lasts, ` +
  'examine the cluster: howdah region doctor';

/** Opens a session; CloudNativePG may just be making the role, which has no password before. */
async function openWhenMade(server: StatementServer, timeoutMs: number): Promise<Client> {
  for (const begunMs = performance.now(); ; await sleep(LOGIN_AGAIN_MS)) {
    try {
      return await openSession(server, timeoutMs);
    } catch (error) {
      const cause = error instanceof EngineUnavailable ? error.cause : null;
      if (!(cause instanceof DatabaseError) || cause.code !== WRONG_PASSWORD) throw error;
      if (performance.now() - begunMs > SESSION_DEADLINE_MS)
        throw new EngineUnavailable(NOT_MADE, { cause: error });
    }
  }
}

type Facts = Readonly<{
  /** The address of the server that has the session. */
  address: string | null;
  /** Whether the role could write, or fill the volume with temporary files. */
  isUnlimited: boolean;
  /** A role that may become this one; null: none may. */
  owner: string | null;
  /** A role whose rights it has beside its own; null: none. */
  granted: string | null;
}>;

/** In SQL of any search path: the session has that of the owner. */
const FACTS = `
  pg_catalog.host(pg_catalog.inet_server_addr()) as address,
  ${CAN_WRITE} or pg_catalog.current_setting('temp_file_limit') operator(pg_catalog.=) '-1'
    as "isUnlimited",
  (select pg_catalog.pg_get_userbyid(m.member) from pg_catalog.pg_auth_members m
   where m.roleid operator(pg_catalog.=) session_user::pg_catalog.regrole limit 1) as owner,
  (select pg_catalog.pg_get_userbyid(m.roleid) from pg_catalog.pg_auth_members m
   where m.member operator(pg_catalog.=) session_user::pg_catalog.regrole
     and m.roleid operator(pg_catalog.<>) 'pg_read_all_data'::pg_catalog.regrole limit 1)
    as granted`;

type Begun = Readonly<{ client: Client; address: string | null }>;

/** Opens a session that cannot write. */
async function begin(server: StatementServer, timeoutMs: number): Promise<Begun> {
  const client = await openWhenMade(server, timeoutMs);
  const facts = await beginReading<Facts>(client, server, FACTS);
  const why = whyUnsafe(facts);
  if (why === null) return { client, address: facts?.address ?? null };
  client.connection.stream.destroy();
  throw why;
}

/** Why the role has more rights than it must have; null: it has not. */
export function whyUnsafe(facts: Omit<Facts, 'address'> | null): Error | null {
  if (facts === null) return new EngineUnavailable('it gave no answer');
  const { owner, granted, isUnlimited } = facts;
  if (owner !== null) return new EngineUnavailable(whyTaken(owner));
  if (granted !== null)
    return new EngineUnavailable(
      `its user granted the role ${granted} to ${READER_ROLE}, which may have no other rights: ` +
        `revoke ${granted} from ${READER_ROLE}`,
    );
  if (!isUnlimited) return null;
  return new StatementRefused(
    `a session that only reads could write here: functions like pg_logical_emit_message are open ` +
      `to everybody, or ${READER_ROLE} has no temp_file_limit`,
    {
      sqlstate: INSUFFICIENT_PRIVILEGE,
      hint:
        'Services that an earlier release made are so, their forks, and databases made from ' +
        `template0: create a service, and copy the data with pg_dump as ${ADMIN_ROLE}.`,
    },
  );
}
const INSUFFICIENT_PRIVILEGE = '42501';
