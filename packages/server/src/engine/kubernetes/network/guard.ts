/**
 * Ends the sessions of clients that are no longer in the allowed networks of a service. The rules
 * are in pg_hba.conf, which PostgreSQL applies to logins only.
 */
import { messageOf } from '@howdah/contract/thrown';
import { Client, DatabaseError } from 'pg';
import { Type } from 'typebox';
import { EngineUnavailable } from '../../engine.ts';
import { startupOptions } from '../../startup-options.ts';
import { KINDS } from '../api/kinds.ts';
import { controlSecret } from '../names.ts';
import { CONTROL_DATABASES, GUARD_ROLE, NETWORKS_SETTING, networksVersion } from './rules.ts';
import type { Region } from '../region/region.ts';
import { placesIn } from '../cluster/objects.ts';
import { endpointOf } from './routes.ts';
import { NO_ANSWER, throwUnavailable } from '../api/errors.ts';

/**
 * How long after a change sessions are ended once more. A client that has begun to log in before
 * the rules were loaded may take 60 s for it, PostgreSQL's `authentication_timeout`. A standby that
 * becomes the primary has sessions of its own, and may not be ready at once.
 */
const AGAIN_AFTER_MS = [5000, 75_000];
/** Over nodes and TLS; a session that fails is opened again, and takes as long. */
export const SESSION_DEADLINE_MS = 20_000;
/**
 * Nodes pass on the addresses of clients some moments after the Service says so, and refuse allowed
 * clients until then. It is known to be over once the server sees the address of the control plane,
 * which it never does through a NAT on the way.
 */
const ADDRESSES_WITHIN_MS = 5000;

/** The parts of a region that sessions need. */
export type Reach = Pick<Region, 'cache' | 'kube' | 'settings' | 'authority'>;

/** @param failed called with the error of background work */
export function createNetworkGuard(region: Reach, failed: (error: unknown) => void) {
  const timers = new Map<string, NodeJS.Timeout[]>();
  /** Since when a service does not see the address of the control plane; ms since the epoch. */
  const hidden = new Map<string, number>();
  const forget = (id: string): void => {
    timers.get(id)?.forEach((timer) => clearTimeout(timer));
    timers.delete(id);
  };
  const end = async (id: string): Promise<void> => {
    const desired = region.cache.cluster(id)?.desired;
    if (desired?.networks === undefined) return;
    try {
      await endDisallowed(region, id, desired.networks, desired.pooled === true);
    } catch (error) {
      // A change that is under way ends sessions by itself, and a server that is down has none.
      if (!(error instanceof EngineUnavailable)) failed(error);
    }
  };
  /** Ends the sessions of others in a while, as of a primary that has just become it. */
  const endLater = (id: string): void => {
    forget(id);
    const later = AGAIN_AFTER_MS.map((ms) => setTimeout(() => void end(id), ms).unref());
    timers.set(id, later);
  };
  return {
    /**
     * Waits for nothing: a server that has not loaded the rules yet is an error.
     *
     * @param networks those that were asked for
     * @param isPooled whether its pooler may connect beside them
     * @throws EngineUnavailable
     */
    enforce: async (id: string, networks: readonly string[], isPooled: boolean): Promise<void> => {
      const isSeen = await endDisallowed(region, id, networks, isPooled);
      const sinceMs = hidden.get(id) ?? Date.now();
      hidden.set(id, sinceMs);
      if (!isSeen && Date.now() - sinceMs < ADDRESSES_WITHIN_MS)
        throw new EngineUnavailable('the nodes do not pass on the addresses of clients yet');
      hidden.delete(id);
      endLater(id);
    },
    endLater,
    close: (): void => [...timers.keys()].forEach(forget),
  };
}

/** In SQL of any search path: the database may be that of a user. */
const LOADED = `
  select pg_catalog.current_setting('${NETWORKS_SETTING}', true) as version,
    pg_catalog.host(pg_catalog.inet_client_addr()) as address`;
const END = `
  select pg_catalog.count(pg_catalog.pg_terminate_backend(pid))
  from pg_catalog.pg_stat_activity join pg_catalog.pg_stat_ssl using (pid)
  where client_addr is not null
    -- Clients have no certificate, and a pooler, which has one, examines its own clients.
    and (client_dn is null or not $3)
    -- The name is missing if the role was dropped.
    and (usename is null or usename operator(pg_catalog.<>) all ($2::pg_catalog.name[]))
    and not (client_addr operator(pg_catalog.<<=) any ($1::pg_catalog.inet[]))`;
/** Roles that other rules let in: standbys, statements, and this one. */
const OTHERS = ['streaming_replica', 'howdah_reader', GUARD_ROLE];

/** @returns whether the server sees the address that the control plane has for it */
async function endDisallowed(
  region: Reach,
  id: string,
  networks: readonly string[],
  isPooled: boolean,
): Promise<boolean> {
  const client = await openSession(region, id);
  const { stream } = client.connection;
  const localAddress = 'localAddress' in stream ? stream.localAddress : null;
  try {
    const { rows } = await client.query<{ version: string | null; address: string }>(LOADED);
    if (rows[0]?.version !== networksVersion(networks, isPooled))
      throw new EngineUnavailable('PostgreSQL has not loaded the allowed networks yet');
    await client.query(END, [networks, OTHERS, isPooled]);
    return rows[0].address === localAddress;
  } catch (error) {
    if (error instanceof EngineUnavailable) throw error;
    throw new EngineUnavailable(`sessions of other networks: ${messageOf(error)}`, {
      cause: error,
    });
  } finally {
    // Not `end()`, which would wait for a server that may hang.
    client.connection.stream.destroy();
  }
}

const NO_PRIVILEGE = '42501';

/** A session beside the usual ones. */
type SessionOf = Readonly<{
  /** Any database of the service; the one of the control plane by default. */
  database?: string;
  /** The time limit of a statement. */
  limitMs?: number;
}>;

/**
 * A session of the role of the control plane, which only reads.
 *
 * @throws EngineUnavailable; its cause says why a database refuses
 */
export async function openSession(
  region: Reach,
  id: string,
  { database, limitMs = SESSION_DEADLINE_MS }: SessionOf = {},
): Promise<Client> {
  const [own, users] = CONTROL_DATABASES;
  const password = await passwordOf(region, id);
  const connectTo = (name: string) => connect(region, id, { password, database: name, limitMs });
  try {
    return await connectTo(database ?? own);
  } catch (error) {
    const isRefused = error instanceof DatabaseError && error.code === NO_PRIVILEGE;
    if (database !== undefined || !isRefused) throw unavailable(error);
    return await connectTo(users).catch((why: unknown) => {
      throw unavailable(why);
    });
  }
}

async function connect(
  { cache, settings, authority }: Reach,
  id: string,
  { password, database, limitMs }: Required<SessionOf> & Readonly<{ password: string }>,
): Promise<Client> {
  const cluster = cache.cluster(id);
  const endpoint = cluster === null ? null : endpointOf(settings, cluster);
  if (endpoint === null) throw new EngineUnavailable('it has no Cluster');
  const client = new Client({
    ...endpoint,
    user: GUARD_ROLE,
    password,
    database,
    ssl: { ca: authority.certificatePem, rejectUnauthorized: true },
    application_name: 'howdah',
    connectionTimeoutMillis: SESSION_DEADLINE_MS,
    // A time limit of the client too: a server that hangs cancels no statement.
    query_timeout: limitMs + SESSION_DEADLINE_MS,
    // The owner of a database may have set others for all sessions in it.
    options: startupOptions({
      limitMs,
      readOnly: true,
      major: cluster?.desired?.major ?? null,
      superuser: false,
    }),
  });
  client.on('error', () => undefined); // the running statement reports it
  try {
    await client.connect();
  } catch (error) {
    client.connection.stream.destroy();
    throw error;
  }
  return client;
}

const PASSWORD = Type.Object({ data: Type.Object({ password: Type.String() }) });

async function passwordOf({ cache, kube }: Reach, id: string): Promise<string> {
  const cluster = cache.cluster(id);
  if (cluster?.projectId == null)
    throw new EngineUnavailable(cache.staleWhy() === null ? 'it has no Cluster' : NO_ANSWER);
  const place = placesIn(cluster.projectId)(KINDS.secret, controlSecret(id));
  const secret = await kube.get(place, PASSWORD).catch(throwUnavailable);
  if (secret === null) throw new EngineUnavailable(`it has no secret ${controlSecret(id)}`);
  return Buffer.from(secret.data.password, 'base64').toString('utf8');
}

const unavailable = (error: unknown): EngineUnavailable =>
  error instanceof EngineUnavailable
    ? error
    : new EngineUnavailable(
        `the control plane has no session as ${GUARD_ROLE}, which ends sessions of other ` +
          `networks, marks WAL, and reads what a move copies: ${messageOf(error)}`,
        { cause: error },
      );
