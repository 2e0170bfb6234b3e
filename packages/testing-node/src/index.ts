/**
 * A database of its own for each test: a lease of a service of Howdah. It has the data of the
 * service, is extended while the test runs, and returned when it ends.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Schemas } from '@howdah/client';
import { connect, type Connection, type Settings } from '@howdah/client/node';

export type DatabaseOptions = Partial<Settings> & {
  /** The id or name of the service to copy; default: HOWDAH_LEASE_FROM in the environment. */
  from?: string;
  /**
   * server (the default): a server of its own, with roles and settings; database: a database in a
   * server that tests share.
   */
  reset?: 'server' | 'database';
};

export type TestDatabase = {
  /** The URL for clients, with its password and the certificate of its server. */
  url: string;
  host: string;
  port: number;
  user: string;
  password: string;
  database: string;
  /** The certificate of the authority of its server, in PEM. */
  ca: string;
  /** The id of the lease. */
  leaseId: string;
  /** Returns it. A database that cannot be returned now ends by itself. */
  close: () => Promise<void>;
};

/** The context of a test: of node:test, or of vitest. */
export type TestContext =
  | { after: (work: () => Promise<void>) => void }
  | { onTestFinished: (work: () => Promise<void>) => void };

/** A killed runner leaves its databases for so long. */
const TTL_SECONDS = 120;
const READY_WITHIN_MS = 60_000;
const POLL_MS = 100;

/**
 * A database for a test, which is returned when the test ends.
 *
 * @param context what node:test and vitest pass to a test
 * @throws Error: no service is named, or the lease was not ready in time; HowdahError
 */
export async function databaseFor(
  context: TestContext,
  options: DatabaseOptions = {},
): Promise<TestDatabase> {
  const database = await takeDatabase(options);
  if ('onTestFinished' in context) context.onTestFinished(database.close);
  else context.after(database.close);
  return database;
}

/** Runs work with a database, which is returned when the work ends, whatever the end. */
export async function withDatabase<T>(
  work: (database: TestDatabase) => Promise<T>,
  options: DatabaseOptions = {},
): Promise<T> {
  const database = await takeDatabase(options);
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

/** A database that the caller closes. @throws as {@link databaseFor} */
export async function takeDatabase(options: DatabaseOptions = {}): Promise<TestDatabase> {
  const { from = process.env['HOWDAH_LEASE_FROM'], reset = 'server', ...settings } = options;
  if (from === undefined || from === '')
    throw new Error('from: name the service to copy, or set HOWDAH_LEASE_FROM');
  const connection = await connect(settings);
  const body = { from: await idOf(connection, from), reset, ttl_seconds: TTL_SECONDS };
  const params = { path: { project_id: connection.projectId } };
  const { data } = await connection.client.POST('/projects/{project_id}/leases', { params, body });
  const [lease] = data?.leases ?? [];
  if (lease === undefined) throw new Error('the API answered without a lease');
  const extending = setInterval(() => void extend(connection, lease.id), (TTL_SECONDS * 1000) / 3);
  extending.unref();
  const close = async (): Promise<void> => {
    clearInterval(extending);
    await giveBack(connection, lease.id);
  };
  try {
    await untilReady(connection, lease);
    return { ...(await addressOf(connection, lease)), leaseId: lease.id, close };
  } catch (error) {
    await close();
    throw error;
  }
}

type Lease = Schemas['Lease'];

/** The ids of services, by the address of the API and what they were named by. */
const known = new Map<string, Promise<string>>();

/** The id of the service with an id or name. Many tests ask for the same one. */
function idOf(connection: Connection, wanted: string): Promise<string> {
  const key = `${connection.apiUrl} ${connection.projectId} ${wanted}`;
  const found = known.get(key) ?? findService(connection, wanted);
  known.set(key, found);
  found.catch(() => known.delete(key));
  return found;
}

async function findService({ client, projectId }: Connection, wanted: string): Promise<string> {
  const params = { path: { project_id: projectId } };
  const { data: services = [] } = await client.GET('/projects/{project_id}/services', { params });
  const byId = services.filter(({ service_id: id }) => id === wanted);
  const [first, second] = byId.length > 0 ? byId : services.filter(({ name }) => name === wanted);
  if (first === undefined)
    throw new Error(`from: there is no service ${wanted}; howdah service list shows them`);
  if (second !== undefined)
    throw new Error(`from: several services are called ${wanted}; name one by its id`);
  return first.service_id;
}

async function untilReady({ client, projectId }: Connection, lease: Lease): Promise<void> {
  const params = { path: { project_id: projectId, lease_id: lease.id } };
  const endMs = Date.now() + READY_WITHIN_MS;
  for (let now = lease; !now.ready;) {
    if (Date.now() > endMs)
      throw new Error(`the database was not ready in time: ${now.problem ?? 'it is being made'}`);
    await sleep(POLL_MS);
    const { data } = await client.GET('/projects/{project_id}/leases/{lease_id}', { params });
    now = data ?? now;
  }
}

/** An extension that fails is made again by the next one. */
async function extend({ client, projectId }: Connection, id: string): Promise<void> {
  const params = { path: { project_id: projectId } };
  const body = { lease_ids: [id], ttl_seconds: TTL_SECONDS };
  await client
    .POST('/projects/{project_id}/leases/extend', { params, body })
    .catch(() => undefined);
}

/** A test does not fail because its database cannot be returned: that ends by itself. */
async function giveBack({ client, projectId }: Connection, id: string): Promise<void> {
  const params = { path: { project_id: projectId } };
  await client
    .POST('/projects/{project_id}/leases/return', { params, body: { lease_ids: [id] } })
    .catch(() => undefined);
}

/** The authority of each installation, by the address of its API. */
const authorities = new Map<string, Promise<{ pem: string; file: string }>>();

function authorityOf({ apiUrl }: Connection): Promise<{ pem: string; file: string }> {
  const found = authorities.get(apiUrl) ?? readAuthority(apiUrl);
  authorities.set(apiUrl, found);
  found.catch(() => authorities.delete(apiUrl));
  return found;
}

/** Clients read the certificate from a file, which stays until this process ends. */
async function readAuthority(apiUrl: string): Promise<{ pem: string; file: string }> {
  const response = await fetch(`${apiUrl}/ca.pem`);
  if (!response.ok) throw new Error(`${apiUrl}/ca.pem: the API answered ${response.status}`);
  const pem = await response.text();
  const directory = mkdtempSync(join(tmpdir(), 'howdah-testing-'));
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, 'ca.pem');
  writeFileSync(file, pem);
  return { pem, file };
}

async function addressOf(connection: Connection, lease: Lease) {
  const { endpoint, role: user, database, initial_password: password = '' } = lease;
  const { pem: ca, file } = await authorityOf(connection);
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;
  const mode = `sslmode=verify-full&sslrootcert=${encodeURIComponent(file)}`;
  const url =
    `postgres://${user}:${encodeURIComponent(password)}@${host}:${endpoint.port}/${database}` +
    `?${mode}`;
  return { url, ...endpoint, user, password, database, ca };
}
