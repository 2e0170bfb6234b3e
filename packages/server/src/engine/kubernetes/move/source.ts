/**
 * What a service on Kubernetes does for its copy on a machine. Nothing is made in it for that: the
 * copy logs in by the certificate of its standbys. No session here is one of a superuser, and the
 * owner of the service may be hostile.
 */
import { DatabaseError, type Client } from 'pg';
import { Type } from 'typebox';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { OPEN_DATABASES } from '../../../domain/postgres/databases.ts';
import { EngineUnavailable } from '../../engine.ts';
import {
  EXAMINED_WITHIN_MS,
  LOGICAL_SLOTS,
  oneAtATime,
  readMovedData,
  readNames,
  STATEMENT_MS,
  UNLOGGED,
} from '../../moved-data.ts';
import {
  COPY_APPLICATION,
  COPY_ROLE,
  MoveRefused,
  type ClientCertificate,
  type CopyProgress,
  type MovedData,
  type MoveSource,
  type Stopping,
} from '../../moves.ts';
import { POOLER_ROLE } from '../../pooler/lookup.ts';
import { READER_ROLE, withinTime } from '../../statements/session.ts';
import { KINDS } from '../api/kinds.ts';
import { FENCED, FENCED_ALL, HIBERNATION } from '../cluster/manifest.ts';
import { clusterName, replicationSecret } from '../names.ts';
import { GUARD_ROLE } from '../network/rules.ts';
import { openSession } from '../network/guard.ts';
import type { Region } from '../region/region.ts';
import { placesIn } from '../cluster/objects.ts';
import { STOPPED_BY_MOVE, type ClusterState } from '../cluster/state.ts';
import { NO_ANSWER, throwUnavailable } from '../api/errors.ts';

/** The role of standbys: CloudNativePG makes it, and a certificate by which it logs in. */
const STANDBY_ROLE = 'streaming_replica';
/** A checkpoint writes all that is not on the disk. */
const CHECKPOINT_MS = 120_000;

export function createMoveSource(region: Region): MoveSource {
  return {
    read: oneAtATime((id) => readService(region, id)),
    login: async (id) => ({
      verifier: null,
      certificate: await readCertificate(region, id).catch(throwUnavailable),
    }),
    // No module of its image enforces read-only roles: there is nothing to withhold.
    withhold: async () => undefined,
    giveBack: async () => undefined,
    admit: async (_id, { roles, databases }) => {
      if (roles.length > 0 || databases.length > 0)
        throw new MoveRefused(
          'the region that it moves to needs roles in it, which nobody can make',
        );
    },
    progress: (id) => inSession(region, id, {}, readProgress),
    checkpoint: (id) => checkpoint(region, id),
    stop: (id, stopping) => stop(region, id, stopping),
    dismiss: async () => undefined,
    retire: (id) => retire(region, id),
  };
}

type SessionOf = Parameters<typeof openSession>[2];

/** @throws EngineUnavailable; MoveRefused of the work */
async function inSession<T>(
  region: Region,
  id: string,
  session: SessionOf,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await openSession(region, id, session);
  try {
    return await work(client);
  } catch (error) {
    if (error instanceof MoveRefused) throw error;
    const reason = messageOf(error);
    throw new EngineUnavailable(reason, { cause: error });
  } finally {
    // Not `end()`, which would wait for a server that may hang.
    client.connection.stream.destroy();
  }
}

/** The roles that Howdah and CloudNativePG make. */
const OWN_ROLES = [
  ADMIN_ROLE,
  COPY_ROLE,
  STANDBY_ROLE,
  GUARD_ROLE,
  READER_ROLE,
  POOLER_ROLE,
  'cnpg_metrics_exporter',
  'cnpg_pooler_pgbouncer',
];

/** PostgreSQL's own have reserved names. Nobody may become one of ours. */
const TENANTS_ROLES = `
  select rolname::text as name from pg_roles r
  where not starts_with(rolname, 'pg_')
    and (not rolname = any ('{${OWN_ROLES.join(',')}}')
      or exists (select from pg_auth_members m where m.roleid = r.oid))`;

/** No tenant may connect to it, and neither may the role of the session. */
const CLOSED_DATABASES: readonly string[] = ['template1'];

async function readService(region: Region, id: string): Promise<MovedData> {
  const within = withinTime(EXAMINED_WITHIN_MS, () => performance.now());
  const data = await readMovedData({
    closed: CLOSED_DATABASES,
    roles: TENANTS_ROLES,
    // Only a superuser can have set something by ALTER SYSTEM.
    readMore: async () => ({ readOnlyRoles: [], systemSettings: [] }),
    inSession: async (database, work) => {
      const limitMs = within(STATEMENT_MS);
      try {
        return await inSession(
          region,
          id,
          database === null ? { limitMs } : { database, limitMs },
          work,
        );
      } catch (error) {
        if (database !== null && isClosed(error)) return null;
        throw error;
      }
    },
  });
  if (data === null) throw new EngineUnavailable('it cannot be read');
  return { ...data, architecture: await inSession(region, id, {}, readArchitecture) };
}

/** No rule or right lets the role in, or its owner has closed or dropped it. */
const CLOSED = ['28000', '42501', '55000', '3D000'];

const isClosed = (error: unknown): boolean => {
  const cause = error instanceof EngineUnavailable ? error.cause : null;
  return cause instanceof DatabaseError && CLOSED.includes(cause.code ?? '');
};

/** Kubernetes' names of those that compilers name in another way. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x86_64: 'amd64', aarch64: 'arm64' };

/** As PostgreSQL was built: the nodes of a cluster may have several. */
async function readArchitecture(client: Client): Promise<string> {
  const { rows } = await client.query<{ version: string }>('select version() as version');
  const found = / on ([^-, ]+)-/.exec(rows[0]?.version ?? '')?.[1] ?? 'unknown';
  return ARCHITECTURES[found] ?? found;
}

const CERTIFICATE = Type.Object({
  data: Type.Object({ 'tls.crt': Type.String(), 'tls.key': Type.String() }),
});

/** @throws EngineUnavailable, KubeError */
async function readCertificate(region: Region, id: string): Promise<ClientCertificate> {
  const { kube, authority } = region;
  const { projectId } = clusterOrUnavailable(region, id);
  const place = placesIn(projectId)(KINDS.secret, replicationSecret(id));
  const secret = await kube.get(place, CERTIFICATE);
  if (secret === null)
    throw new EngineUnavailable(`it has no secret ${place.name}, which CloudNativePG makes`);
  return {
    user: STANDBY_ROLE,
    certificatePem: decoded(secret.data['tls.crt']),
    keyPem: decoded(secret.data['tls.key']),
    authorityPem: authority.certificatePem,
  };
}

const decoded = (text: string): string => Buffer.from(text, 'base64').toString('utf8');

/** @throws EngineUnavailable */
function clusterOrUnavailable(
  { cache }: Region,
  id: string,
): ClusterState & { readonly projectId: string } {
  const stale = cache.staleWhy();
  const cluster = cache.cluster(id);
  if (stale !== null) throw new EngineUnavailable(NO_ANSWER);
  if (cluster?.projectId == null) throw new EngineUnavailable('it has no Cluster');
  return { ...cluster, projectId: cluster.projectId };
}

/** A base backup has no position that it has replayed. */
async function readProgress(client: Client): Promise<CopyProgress> {
  const { rows } = await client.query<{ lag: string | null }>(
    `select max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::text as lag
     from pg_stat_replication
     where usename = $1 and application_name = $2 and state = 'streaming'
       and replay_lsn is not null`,
    [STANDBY_ROLE, COPY_APPLICATION],
  );
  const lag = rows[0]?.lag ?? null;
  return { mayLogIn: true, lagBytes: lag === null ? null : Math.max(0, Number(lag)) };
}

const NO_PRIVILEGE = '42501';

/** Where an earlier release has made the role, CloudNativePG makes one at the stop. */
async function checkpoint(region: Region, id: string): Promise<void> {
  try {
    await inSession(region, id, { limitMs: CHECKPOINT_MS }, (client) => client.query('checkpoint'));
  } catch (error) {
    const cause = error instanceof EngineUnavailable ? error.cause : null;
    if (!(cause instanceof DatabaseError) || cause.code !== NO_PRIVILEGE) throw error;
  }
}

/**
 * Fences the servers: CloudNativePG shuts PostgreSQL down in order, and all WAL goes to the copy.
 * Only the end of the move lifts the fence.
 */
async function stop(region: Region, id: string, { isOver }: Stopping): Promise<'shutdown'> {
  const cluster = clusterOrUnavailable(region, id);
  if (cluster.stoppedByMove) {
    // The service has accepted writes since, perhaps.
    if (!cluster.fenced) throw new MoveRefused('somebody has started it again meanwhile');
    return 'shutdown';
  }
  if (isOver) throw new MoveRefused('it could not be stopped in time');
  if (cluster.fenced || cluster.desired?.running === false)
    throw new MoveRefused('its server was stopped meanwhile');
  await refuseUnlogged((database, work) =>
    inSession(region, id, database === null ? {} : { database }, work),
  );
  await inSession(region, id, { database: DATABASE_NAME }, closeToOthers);
  const annotations = { [FENCED]: FENCED_ALL, [STOPPED_BY_MOVE]: new Date().toISOString() };
  await annotate(region, cluster, id, annotations);
  return 'shutdown';
}

/** Examines again what moments can change, and ends sessions that a stop would wait for. */
export async function closeToOthers(client: Client): Promise<void> {
  const [slot] = await readNames(client, LOGICAL_SLOTS);
  if (slot !== undefined) throw new MoveRefused('it has got a logical slot, which a copy has not');
  // A server that has been started again since has another shutdown in the WAL of its copy, which
  // the copy would take for the end.
  const { lagBytes } = await readProgress(client);
  if (lagBytes === null) throw new Error('its copy does not follow at this moment');
  // A stop waits until each of them has all WAL, and tenants have some that read nothing.
  await client.query(END_OTHER_WALSENDERS, [STANDBY_ROLE]);
}

/**
 * Examines all databases again: each has its own catalog of tables.
 *
 * @param inDatabase null: the database of the control plane
 */
export async function refuseUnlogged(
  inDatabase: <T>(database: string | null, work: (client: Client) => Promise<T>) => Promise<T>,
): Promise<void> {
  const names = await inDatabase(null, (client) => readNames(client, OPEN_DATABASES));
  for (const database of names.filter((name) => !CLOSED_DATABASES.includes(name))) {
    const [unlogged] = await inDatabase(database, (client) => readNames(client, UNLOGGED));
    if (unlogged !== undefined)
      throw new MoveRefused('it has got an unlogged table, whose rows a copy has not');
  }
}

/** A base backup that is left over from the copy is none that streams. */
const END_OTHER_WALSENDERS = `
  select pg_terminate_backend(pid) from pg_stat_replication
  where not (usename is not distinct from $1 and state = 'streaming')
    and not exists (select from pg_roles where oid = usesysid and rolsuper)`;

/** Ends the pods of a fenced service; its volume stays. */
async function retire(region: Region, id: string): Promise<void> {
  const cluster = region.cache.cluster(id);
  if (region.cache.staleWhy() === null && (cluster === null || cluster.hibernated)) return;
  await annotate(region, clusterOrUnavailable(region, id), id, { [HIBERNATION]: 'on' });
}

async function annotate(
  { kube, cache }: Region,
  { projectId }: Readonly<{ projectId: string }>,
  id: string,
  annotations: Readonly<Record<string, string>>,
): Promise<void> {
  const place = placesIn(projectId)(KINDS.cluster, clusterName(id));
  cache.put(await kube.merge(place, { metadata: { annotations } }).catch(throwUnavailable));
}
