/**
 * Sets the password of tsdbadmin, by its Secret: CloudNativePG writes it into the database.
 * Sessions that began with the password of before are ended by the role of the control plane.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ADMIN_ROLE } from '@howdah/contract';
import type { Client } from 'pg';
import { EngineUnavailable, type PasswordChange } from '../engine.ts';
import { KINDS } from './api/kinds.ts';
import { openSession } from './network/guard.ts';
import type { Region } from './region/region.ts';
import { askChallenge, saltOf } from './network/challenge.ts';
import { writePassword } from './cluster/objects.ts';
import { endpointOf } from './network/routes.ts';
import { NO_ANSWER, throwUnavailable } from './api/errors.ts';

/** How long a new password may take: CloudNativePG writes it as soon as it notices the secret. */
const PASSWORD_WITHIN_MS = 20_000;
const PASSWORD_POLL_MS = 100;
/** Each end of blocking sessions needs a session of its own. */
const BLOCKERS_EVERY_MS = 1000;
/**
 * How long after a change sessions are ended once more: a login that had begun may take 60 s, and a
 * node of a read replica set may be behind.
 */
const AGAIN_AFTER_MS = [5000, 75_000];

/** @param failed called with the error of background work */
export async function setPassword(
  region: Region,
  id: string,
  verifier: string,
  { isPaused, keepSessions, sets }: PasswordChange,
  failed: (error: unknown) => void,
): Promise<void> {
  const { cache, settings, authority } = region;
  const cluster = cache.cluster(id);
  const endpoint = cluster === null ? null : endpointOf(settings, cluster);
  if (cluster?.projectId == null || endpoint === null)
    throw new EngineUnavailable(cache.staleWhy() === null ? 'it has no Cluster' : NO_ANSWER);
  // Otherwise the next start would set a password that was refused.
  if (cluster.desired?.running === false && !isPaused) throw new EngineUnavailable('it is paused');
  await writePassword(region, id, cluster.projectId, verifier).catch(throwUnavailable);
  if (isPaused) return;
  const begunMs = Date.now();
  for (let asked = 0; ; asked++) {
    const challenge = await askChallenge(endpoint, authority.certificatePem);
    // Where the control plane may not log in, it cannot see the salt.
    if (challenge.kind === 'disallowed' || challenge.salt === saltOf(verifier)) break;
    if (Date.now() - begunMs > PASSWORD_WITHIN_MS)
      throw new EngineUnavailable(
        'CloudNativePG has the new password and has not set it yet; send it again, and examine ' +
          'the cluster: howdah region doctor',
      );
    if (asked % (BLOCKERS_EVERY_MS / PASSWORD_POLL_MS) === 0)
      await inSession(region, id, (client) => client.query(END_BLOCKERS)).catch(failed);
    await sleep(PASSWORD_POLL_MS);
  }
  if (!keepSessions) await endOlderSessions(region, [id, ...sets], failed);
}

/** Sessions of tenants that CloudNativePG's own waits for, in SQL of any search path. */
const END_BLOCKERS = `
  select pg_catalog.pg_terminate_backend(holder.pid)
  from pg_catalog.pg_stat_activity waiting
    cross join lateral pg_catalog.unnest(pg_catalog.pg_blocking_pids(waiting.pid)) blocking(pid)
    join pg_catalog.pg_stat_activity holder on holder.pid operator(pg_catalog.=) blocking.pid
  where waiting.usename operator(pg_catalog.=) 'postgres'
    and waiting.wait_event_type operator(pg_catalog.=) 'Lock'
    and holder.usename operator(pg_catalog.<>) 'postgres'`;

const END_SESSIONS = `
  select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
  where usename operator(pg_catalog.=) '${ADMIN_ROLE}'
    and backend_start operator(pg_catalog.<=) $1`;

/** Ends sessions now and some times later; an error is reported, since the password is set. */
async function endOlderSessions(
  region: Region,
  ids: readonly string[],
  failed: (error: unknown) => void,
): Promise<void> {
  const ends = await Promise.all(
    ids.map(async (id) => {
      const since = await inSession(region, id, async (client) => {
        const { rows } = await client.query<{ now: string }>(
          'select pg_catalog.clock_timestamp()::pg_catalog.text as now',
        );
        return rows[0]?.now;
      }).catch(failed);
      const end = (): Promise<unknown> =>
        inSession(region, id, (client) => client.query(END_SESSIONS, [since])).catch(failed);
      if (since === undefined) return () => Promise.resolve();
      await end();
      // PgBouncer compares passwords at a login only: clients of before keep their sessions.
      await restartPooler(region, id).catch(failed);
      return end;
    }),
  );
  for (const ms of AGAIN_AFTER_MS)
    setTimeout(() => void Promise.all(ends.map((end) => end())), ms).unref();
}

/** Deletes the pods of a pooler; its Deployment makes others. */
async function restartPooler({ cache, kube }: Region, id: string): Promise<void> {
  const namespace = cache.cluster(id)?.namespace;
  if (namespace === undefined) return;
  for (const name of cache.poolerPods(id).names)
    await kube.remove({ kind: KINDS.pod, namespace, name }, 0);
}

async function inSession<T>(
  region: Region,
  id: string,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await openSession(region, id);
  try {
    return await use(client);
  } finally {
    // Not `end()`, which would wait for a server that may hang.
    client.connection.stream.destroy();
  }
}
