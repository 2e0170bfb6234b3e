import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readFile } from 'node:fs/promises';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { Readable, type Duplex } from 'node:stream';
import tls, { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls';
import { messageOf } from '@howdah/contract/thrown';
import { createClient, type ClientOptions, type HowdahClient } from '@howdah/client';
import {
  findApi,
  findSettings,
  readApi,
  readHome,
  type Settings,
  EnvironmentError,
  readText,
} from '@howdah/client/node';
import { Failure } from './exit.ts';
import { note, paintNote } from './output.ts';

export type Connection = Settings & { client: HowdahClient };

/** The installation's directory, which need not exist. @throws EnvironmentError */
export function homeDirectory(): string {
  return readHome(process.env['HOWDAH_HOME']);
}

/**
 * The credentials that the installation on this machine wrote, whatever the environment says.
 *
 * @throws SettingsError
 */
export async function credentials(): Promise<Settings> {
  return findSettings({}, { HOWDAH_HOME: homeDirectory() });
}

/**
 * The API that the environment names, else the installation on this machine.
 *
 * @throws SettingsError
 */
export async function connect({
  dryRun = false,
  retries = 4,
  idempotencyKey,
}: Pick<ClientOptions, 'dryRun' | 'retries' | 'idempotencyKey'> = {}): Promise<Connection> {
  const found = await access();
  const how = idempotencyKey === undefined ? {} : { idempotencyKey };
  return { ...found, client: createClient({ ...found, dryRun, retries, onWarning, ...how }) };
}

/** The API of the installation on this machine, whatever the environment says. */
export async function connectHere(): Promise<Connection> {
  const found = await reach(await credentials());
  return { ...found, client: createClient({ ...found, onWarning }) };
}

/** An older server may not know an option of this command. */
const onWarning = (text: string): void => note(paintNote.yellow(`warning: ${text}`));

/** The options of a client of that API. @throws SettingsError */
export async function access(): Promise<ClientOptions & Settings> {
  return reach(await findSettings());
}

/** The same without a project. @throws SettingsError */
export async function accessApi(): Promise<ClientOptions> {
  return reach(await findApi());
}

/**
 * The API at an address, for calls without a key; default: the one that the environment names, else
 * the installation on this machine.
 *
 * @throws EnvironmentError, SettingsError
 */
export async function accessWithoutKey(address: string | undefined): Promise<ClientOptions> {
  const named = readApi(address ?? process.env['HD_API']);
  return reach({ apiUrl: named ?? (await credentials()).apiUrl });
}

async function reach<Found extends { apiUrl: string }>(found: Found) {
  const path = join(homeDirectory(), 'ca', 'ca.pem');
  const ownCa = existsSync(path) ? await readFile(path, 'utf8') : null;
  const fetch = makeFetch(found.apiUrl, ownCa, process.env);
  return fetch === undefined ? found : { ...found, fetch };
}

/** The body of an answer that has one. */
export async function answered<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call;
  if (data === undefined) throw new Failure('the server answered without a body');
  return data;
}

/** The CA certificate of the databases; null: the API is not on this machine. */
export async function findCa(apiUrl: string): Promise<string | null> {
  const path = join(homeDirectory(), 'ca', 'ca.pem');
  if (!existsSync(path)) return null;
  // Unreadable credentials are an error: treated as missing, they would weaken the certificate
  // check.
  const own = existsSync(join(homeDirectory(), 'credentials.json')) ? await credentials() : null;
  return own?.apiUrl === apiUrl ? path : null;
}

// How requests reach the API: which certificates are trusted, and through which proxy they go.
//
// Node's own fetch takes CAs only at the start of the process, and knows proxies only in newer
// versions.

type Environment = Readonly<Record<string, string | undefined>>;
type Fetch = (request: Request) => Promise<Response>;

/**
 * A fetch for an address.
 *
 * @param ownCa the CA of the installation on this machine, in PEM; null: it is not here
 * @returns undefined: the platform's does
 * @throws EnvironmentError
 */
function makeFetch(apiUrl: string, ownCa: string | null, env: Environment): Fetch | undefined {
  const api = new URL(apiUrl);
  const proxy = proxyFor(api, env);
  if (api.protocol === 'http:' && proxy === null) return undefined;
  const secureContext = createSecureContext({ ca: authorities(ownCa, env) });
  const https = new Agent({ keepAlive: true, secureContext });
  return async (request) => {
    const url = new URL(request.url);
    const tunnel =
      proxy === null || url.protocol === 'http:'
        ? null
        : await openTunnel(proxy, url, secureContext, request.signal);
    return send(request, url, {
      ...(url.protocol === 'https:' ? { agent: https } : {}),
      ...(tunnel === null ? {} : { agent: false, createConnection: () => tunnel }),
      ...(proxy === null || tunnel !== null ? {} : throughProxy(proxy, url)),
    });
  };
}

type Options = Parameters<typeof httpsRequest>[1];

async function send(request: Request, url: URL, options: Options): Promise<Response> {
  const body = Buffer.from(await request.arrayBuffer());
  const headers = { ...Object.fromEntries(request.headers), ...options.headers };
  const begin = url.protocol === 'https:' ? httpsRequest : httpRequest;
  const { method, signal } = request;
  const incoming = await new Promise<IncomingMessage>((resolve, reject) => {
    begin(url, { ...options, method, headers, signal }, resolve)
      .on('error', (cause) => reject(new TypeError('fetch failed', { cause })))
      .end(body);
  });
  const status = incoming.statusCode ?? 0;
  const answered = Object.entries(incoming.headers).flatMap(([name, value]): [string, string][] =>
    [value ?? []].flat().map((one) => [name, one]),
  );
  // Response must get no body for these statuses, but the connection is free only after the body
  // is read.
  const isEmpty = status === 204 || status === 304;
  if (isEmpty) incoming.resume();
  return new Response(isEmpty ? null : Readable.toWeb(incoming), { status, headers: answered });
}

/** A request of plain HTTP names its whole address to the proxy. */
function throughProxy(proxy: URL, url: URL): Options {
  return {
    agent: new HttpAgent(),
    host: hostOf(proxy),
    port: portOf(proxy),
    path: url.href,
    headers: { host: url.host, ...credentialsOf(proxy) },
  };
}

/** A connection to the API through a proxy, with TLS from end to end. */
async function openTunnel(
  proxy: URL,
  url: URL,
  secureContext: SecureContext,
  signal: AbortSignal,
): Promise<Duplex> {
  const target = `${url.hostname}:${portOf(url)}`;
  const begin = proxy.protocol === 'https:' ? httpsRequest : httpRequest;
  const socket = await new Promise<Duplex>((resolve, reject) => {
    begin({
      host: hostOf(proxy),
      port: portOf(proxy),
      method: 'CONNECT',
      path: target,
      headers: { host: target, ...credentialsOf(proxy) },
      signal,
    })
      .on('connect', ({ statusCode = 0, statusMessage = '' }, opened) => {
        if (statusCode === 200) return resolve(opened);
        opened.destroy();
        return reject(
          new Error(`the proxy ${proxy.host} answered ${statusCode} ${statusMessage}`.trim()),
        );
      })
      .on('error', ({ message }) => reject(new Error(`the proxy ${proxy.host}: ${message}`)))
      .end();
  });
  return connectTls({ socket, servername: hostOf(url), secureContext });
}

/** Without the brackets of an IPv6 address. */
const hostOf = ({ hostname }: URL): string => hostname.replaceAll(/[[\]]/g, '');

const portOf = ({ port, protocol }: URL): string =>
  port === '' ? (protocol === 'https:' ? '443' : '80') : port;

function credentialsOf({ username, password }: URL): Record<string, string> {
  if (username === '') return {};
  const text = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(text).toString('base64')}` };
}

/**
 * The proxy for an address, by the variables that curl reads; null: none. This machine is reached
 * without one.
 *
 * @throws EnvironmentError for a proxy of another kind
 */
function proxyFor(url: URL, env: Environment): URL | null {
  if (/^(localhost|127\.[\d.]+|\[::1\])$/.test(url.hostname)) return null;
  const named = url.protocol === 'https:' ? ['https_proxy', 'HTTPS_PROXY'] : ['http_proxy'];
  const name = [...named, 'all_proxy', 'ALL_PROXY'].find((one) => (env[one] ?? '') !== '');
  const text = name === undefined ? undefined : readText(name, env[name]);
  if (name === undefined || text === undefined || text === '') return null;
  if (isExempt(url, env['no_proxy'] ?? env['NO_PROXY'] ?? '')) return null;
  const address = text.includes('://') ? text : `http://${text}`;
  if (/^https?:\/\//i.test(address) && URL.canParse(address)) return new URL(address);
  throw new EnvironmentError(
    `${name}: names no proxy of http or https; correct it, or add ${url.hostname} to NO_PROXY`,
  );
}

/** Whether a list of names, such as `.example.com,10.0.0.7:8080`, holds the host of an address. */
function isExempt(url: URL, list: string): boolean {
  return list
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== '')
    .some((entry) => {
      if (entry === '*') return true;
      const [, host = entry, port] = /^(.*[^:\]]):(\d+)$/.exec(entry) ?? [];
      if (port !== undefined && port !== portOf(url)) return false;
      const name = host.replace(/^\*?\./, '');
      return hostOf(url) === name || url.hostname === name || url.hostname.endsWith(`.${name}`);
    });
}

/** Where systems keep the CAs that they trust: Debian, Fedora, SUSE, Alpine and macOS. */
const SYSTEM_FILES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/**
 * All trusted CAs: the installation's, those that were named, the system's, and the public ones.
 */
function authorities(ownCa: string | null, env: Environment): string[] {
  const named = readText('HD_CA', env['HD_CA']) ?? '';
  // Node warns of a file of this variable that cannot be read.
  const extra = readOrNull(env['NODE_EXTRA_CA_CERTS'] ?? '');
  return [
    ownCa,
    named === '' ? null : readAuthority(named),
    extra,
    ...(authoritiesOfSystem() ?? [
      SYSTEM_FILES.map(readOrNull).find((pem) => pem !== null) ?? null,
    ]),
    ...tls.rootCertificates,
  ].filter((pem) => pem !== null);
}

/** The system's own store, in versions of Node that read it; null: this one does not. */
function authoritiesOfSystem(): string[] | null {
  const read: unknown = Reflect.get(tls, 'getCACertificates');
  const found: unknown = typeof read === 'function' ? read('system') : null;
  return Array.isArray(found) ? found.map(String) : null;
}

/** @throws EnvironmentError */
function readAuthority(path: string): string {
  let pem: string;
  try {
    pem = readFileSync(path, 'utf8');
  } catch (error) {
    const reason = messageOf(error);
    throw new EnvironmentError(`--ca, HD_CA: ${reason}; name the PEM file of a CA`);
  }
  if (pem.includes('-----BEGIN CERTIFICATE-----')) return pem;
  throw new EnvironmentError(
    `--ca, HD_CA: ${path} has no certificate in PEM; name the file of a CA`,
  );
}

function readOrNull(path: string): string | null {
  try {
    return path === '' ? null : readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
