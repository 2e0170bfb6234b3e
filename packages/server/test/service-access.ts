/** Use of a service through the API and its database, also while the control plane is down. */
import { readFile, writeFile } from 'node:fs/promises';
import type { Client } from 'pg';
import { connectTo, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { until } from './until.ts';

/** A service that a test knows how to get into. */
export type ServiceAccess = {
  service_id: string;
  endpoint: Service['endpoint'];
  initial_password: string;
};

/** More than the window of backups that the default is. */
const AGE_MS = 4 * 86_400_000;

/** Makes a snapshot look as if it had been taken some days ago. */
export async function age(path: string): Promise<void> {
  const snapshot: unknown = JSON.parse(await readFile(path, 'utf8'));
  if (typeof snapshot !== 'object' || snapshot === null || !('takenMs' in snapshot))
    throw new Error(`${path}: no snapshot`);
  await writeFile(
    path,
    JSON.stringify({ ...snapshot, takenMs: Number(snapshot.takenMs) - AGE_MS }),
  );
}

export function accessOf(body: unknown): ServiceAccess {
  if (
    typeof body !== 'object' ||
    body === null ||
    !('service_id' in body) ||
    !('initial_password' in body) ||
    !('endpoint' in body)
  )
    throw new Error(`not a created service: ${JSON.stringify(body)}`);
  const { endpoint } = body;
  if (
    typeof endpoint !== 'object' ||
    endpoint === null ||
    !('host' in endpoint) ||
    !('port' in endpoint)
  )
    throw new Error('no endpoint');
  return {
    service_id: String(body.service_id),
    initial_password: String(body.initial_password),
    endpoint: { host: String(endpoint.host), port: Number(endpoint.port) },
  };
}

export async function withClient<T>(
  cloud: Installation,
  service: ServiceAccess,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

/**
 * Asks a service something that changes nothing. Its server may have been killed a moment ago: then
 * it is asked again.
 */
export async function askPatiently<T>(
  cloud: Installation,
  service: ServiceAccess,
  ask: (client: Client) => Promise<T>,
): Promise<T> {
  const { answer } = await until('the service answers', async () => ({
    answer: await withClient(cloud, service, ask),
  }));
  return answer;
}

/** Rows in the order of their writing; a service without the table has none. */
export async function readNames(client: Client): Promise<string[]> {
  const { rows: tables } = await client.query<{ t: string | null }>("select to_regclass('t') as t");
  if (tables[0]?.t === null) return [];
  return (await client.query<{ name: string }>('select name from t order by n')).rows.map(
    ({ name }) => name,
  );
}

export const namesIn = (cloud: Installation, service: ServiceAccess): Promise<string[]> =>
  askPatiently(cloud, service, readNames);

export const insert = (cloud: Installation, service: ServiceAccess, name: string): Promise<void> =>
  withClient(cloud, service, async (client) => {
    await client.query(
      'create table if not exists t (n int generated always as identity primary key, name text)',
    );
    await client.query('insert into t (name) values ($1)', [name]);
  });

/** A moment of the service's clock after all that was written and before what will be. */
export async function moment(cloud: Installation, service: ServiceAccess): Promise<string> {
  return withClient(cloud, service, async (client) => {
    const before = await nowOf(client);
    /** In a later millisecond: points in time may be shortened to these. */
    const after = (then: string): Promise<string> =>
      until('the clock of the service goes on', async () => {
        const now = await nowOf(client);
        return Date.parse(now) > Date.parse(then) && now;
      });
    const now = await after(before);
    await after(now);
    return now;
  });
}

async function nowOf(client: Client): Promise<string> {
  const { rows } = await client.query<{ now: string }>(
    `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
  );
  return rows[0]?.now ?? '';
}

/** The latest point in time that a service's backups reach. */
export async function latestOf(
  cloud: Installation,
  { service_id }: Pick<ServiceAccess, 'service_id'>,
): Promise<string> {
  const { data } = await cloud.client.GET(
    '/projects/{project_id}/services/{service_id}/backupStatus',
    {
      params: { path: { project_id: cloud.projectId, service_id } },
    },
  );
  return data?.window.latest ?? '';
}

/** Has the newest backup verified. @returns how that ended, and why */
export async function verificationOf(
  cloud: Installation,
  { service_id }: Pick<ServiceAccess, 'service_id'>,
): Promise<{ status: unknown; error: unknown }> {
  const { status, headers } = await cloud.request('POST', `/services/${service_id}/backups/verify`);
  if (status !== 202) throw new Error(`verify: ${status}`);
  const path = `/operations/${headers.get('Operation-Id')}`;
  const verification = await until('the verification ends', async () => {
    const found = Object((await cloud.request('GET', path)).body);
    return typeof found.finished === 'string' && found;
  });
  return { status: verification.status, error: verification.error };
}

export async function power(
  cloud: Installation,
  { service_id: id }: Pick<ServiceAccess, 'service_id'>,
  action: 'start' | 'stop',
): Promise<void> {
  const status = action === 'start' ? 'READY' : 'PAUSED';
  if ((await cloud.get(id)).status === status) return;
  await cloud.request('POST', `/services/${id}/${action}`);
  await cloud.until(id, status);
}

export async function isGone(
  cloud: Installation,
  { service_id: id }: Pick<ServiceAccess, 'service_id'>,
): Promise<boolean> {
  return (await cloud.request('GET', `/services/${id}`)).status === 404;
}

export async function nothingGoesOn(cloud: Installation): Promise<boolean> {
  return (await cloud.operations()).every(({ finished }) => finished !== null);
}

/**
 * How the operations asked for on a service ended; what Howdah does by itself and the end of the
 * scene before are none of them.
 */
export async function endings(
  cloud: Installation,
  { service_id: id }: Pick<ServiceAccess, 'service_id'>,
  sinceMs = 0,
): Promise<string[]> {
  return (await cloud.operations(id))
    .filter(
      ({ kind, created, requested_by }) =>
        requested_by !== 'howdah' &&
        !(kind === 'updatePassword' && sinceMs === 0) &&
        Date.parse(created) >= sinceMs,
    )
    .map(({ kind, status }) => `${kind} ${status}`);
}
