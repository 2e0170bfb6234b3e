/**
 * The two ends of a transfer: a database that somebody names by a URL, and the database of a
 * service. Passwords reach programs through their environment, never as arguments.
 */
import { readFile } from 'node:fs/promises';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract/types';
import type { Schemas } from '@howdah/client';
import { Client, type ClientConfig } from 'pg';
import { endpointOf } from '../address.ts';
import { readSecret } from '../confirm.ts';
import { findCa, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { shortMessageOf } from './steps.ts';

const MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
type Mode = (typeof MODES)[number];

/** A database, and how to reach it. */
export type Endpoint = {
  host: string;
  port: number;
  user: string;
  database: string;
  /** null: libpq and pg find it in PGPASSWORD or ~/.pgpass, or none is needed. */
  password: string | null;
  mode: Mode;
  /** Path of the CA certificate that verifies the server's. */
  ca: string | null;
};

export const isUrl = (text: string): boolean => /^postgres(ql)?:\/\//i.test(text);

/** The database that a URL names. @throws Failure usage, without the URL: it may have a password */
export function endpointOfUrl(text: string): Endpoint {
  let url: URL;
  try {
    // As a special scheme, the parts of the URL are the same in all versions of Node.
    url = new URL(text.replace(/^postgres(ql)?:/i, 'http:'));
  } catch {
    throw new Failure(
      'the source is not a URL of the form postgres://USER@HOST:PORT/DATABASE; characters ' +
        'such as @ : / # in a password are written %40 %3A %2F %23',
      'usage',
    );
  }
  const mode = url.searchParams.get('sslmode') ?? 'prefer';
  const known = MODES.find((one) => one === mode);
  if (known === undefined)
    throw new Failure(`sslmode: found ${mode}; allowed: ${MODES.join(', ')}`, 'usage');
  const user = decodeURIComponent(url.username);
  const database = decodeURIComponent(url.pathname.slice(1));
  if (user === '' || database === '')
    throw new Failure('the URL of the source must name a user and a database', 'usage');
  return {
    host: url.searchParams.get('host') ?? url.hostname.replaceAll(/[[\]]/g, ''),
    port: Number(url.searchParams.get('port') ?? (portOf(text) || 5432)),
    user,
    database,
    password: url.password === '' ? null : decodeURIComponent(url.password),
    mode: known,
    ca: url.searchParams.get('sslrootcert'),
  };
}

/** `new URL` drops a port that is the scheme's own. */
const portOf = (url: string): string => /^[^/]+\/\/[^/]*:(\d+)(?:[/?]|$)/.exec(url)?.[1] ?? '';

/** The database of a service. @param password null: to be found, or asked for */
export async function endpointOfService(
  connection: Connection,
  service: Schemas['Service'],
  password: string | null,
): Promise<Endpoint> {
  const ca = await findCa(connection.apiUrl);
  return {
    ...endpointOf(service),
    user: ADMIN_ROLE,
    database: DATABASE_NAME,
    password,
    mode: ca === null ? 'require' : 'verify-full',
    ca,
  };
}

/** Whom it connects to, without the password. */
export const nameOf = ({ user, host, port, database }: Endpoint): string =>
  `${user}@${host}:${port}/${database}`;

/** The variables with which programs of PostgreSQL connect. */
export function variablesOf(
  { host, port, user, database, password, mode, ca }: Endpoint,
  application: string,
): Record<string, string> {
  return {
    PGHOST: host,
    PGPORT: String(port),
    PGUSER: user,
    PGDATABASE: database,
    PGSSLMODE: mode,
    PGAPPNAME: application,
    ...(password === null ? {} : { PGPASSWORD: password }),
    ...(ca === null ? {} : { PGSSLROOTCERT: ca }),
  };
}

/** Every value has the same text in both servers, and nothing ends a session that works. */
const SETTINGS = `set datestyle = iso, ymd; set intervalstyle = postgres; set timezone = 'UTC';
  set extra_float_digits = 1; set bytea_output = hex; set lc_monetary = 'C';
  set client_encoding = 'UTF8'; set search_path = ''; set row_security = off;
  set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0;
  set default_transaction_read_only = off`;

/**
 * Connects. The caller ends the session.
 *
 * @param more.replication for the commands of logical replication
 * @throws Failure
 */
export async function open(
  endpoint: Endpoint,
  application: string,
  more: { replication?: 'database' } = {},
): Promise<Client> {
  try {
    const client = await connectIn(endpoint, application, more);
    if (more.replication === undefined) await client.query(SETTINGS);
    return client;
  } catch (error) {
    throw new Failure(`cannot connect to ${nameOf(endpoint)}: ${shortMessageOf(error)}`);
  }
}

async function connectIn(
  endpoint: Endpoint,
  application: string,
  more: { replication?: 'database' },
): Promise<Client> {
  const { mode, ca } = endpoint;
  const options = { ...more, application_name: application };
  const isVerified = mode === 'verify-ca' || mode === 'verify-full';
  const ssl = {
    rejectUnauthorized: isVerified,
    ...(ca === null ? {} : { ca: await readFile(ca, 'utf8') }),
    ...(mode === 'verify-ca' ? { checkServerIdentity: () => undefined } : {}),
  };
  if (mode === 'disable' || endpoint.host.startsWith('/'))
    return connectOnce(endpoint, { ...options, ssl: false });
  try {
    return await connectOnce(endpoint, { ...options, ssl });
  } catch (error) {
    const isOptional = mode === 'prefer' || mode === 'allow';
    if (!isOptional || !shortMessageOf(error).includes('does not support SSL')) throw error;
    return connectOnce(endpoint, { ...options, ssl: false });
  }
}

async function connectOnce(
  { host, port, user, database, password }: Endpoint,
  more: ClientConfig,
): Promise<Client> {
  const client = new Client({
    host,
    port,
    user,
    database,
    keepAlive: true,
    connectionTimeoutMillis: 20_000,
    ...(password === null ? {} : { password }),
    ...more,
  });
  // A session that ends makes the next statement fail, which is the place to report it.
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/**
 * The endpoint with a password that works: as it is, else with the one that is typed, or read from
 * the first line of standard input.
 *
 * @throws Failure
 */
export async function withPassword(endpoint: Endpoint, application: string): Promise<Endpoint> {
  try {
    await (await open(endpoint, application)).end();
    return endpoint;
  } catch (error) {
    if (endpoint.password !== null || !/password/i.test(shortMessageOf(error))) throw error;
  }
  const password = await readSecret(`Password of ${nameOf(endpoint)}: `);
  const found = { ...endpoint, password };
  await (await open(found, application)).end();
  return found;
}
