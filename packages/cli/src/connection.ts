import { createClient, type ClientOptions, type HowdahClient } from '@howdah/client';
import { findSettings, type Settings } from '@howdah/client/node';
import { existsSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { Failure } from './exit.ts';
import { note, paintNote } from './output.ts';

export type Connection = Settings & { client: HowdahClient };

/** The installation's directory, unchecked. */
export function homeDirectory(): string {
  return resolve((process.env['HOWDAH_HOME'] || '~/.howdah').replace(/^~(?=\/|$)/, homedir()));
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
}: Pick<ClientOptions, 'dryRun' | 'retries'> = {}): Promise<Connection> {
  const found = await access();
  return { ...found, client: createClient({ ...found, dryRun, retries, onWarning }) };
}

/** An older server may not know an option of this command. */
const onWarning = (text: string): void => note(paintNote.yellow(`warning: ${text}`));

/** The options of a client of that API. @throws SettingsError */
export async function access(): Promise<ClientOptions & Settings> {
  const found = await findSettings();
  return found.apiUrl.startsWith('https:') ? { ...found, fetch: await makeFetchByTls() } : found;
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

/** The trusted CAs: the installation's own, and the public ones. */
async function authorities(): Promise<string[]> {
  const { rootCertificates } = await import('node:tls');
  const path = join(homeDirectory(), 'ca', 'ca.pem');
  // An API elsewhere may have a certificate of a public CA.
  if (!existsSync(path)) return [...rootCertificates];
  return [await readFile(path, 'utf8'), ...rootCertificates];
}

/** A fetch with our CA: Node's own fetch takes CAs only at the start of the process. */
async function makeFetchByTls(): Promise<(request: Request) => Promise<Response>> {
  const { request: httpsRequest } = await import('node:https');
  const ca = await authorities();
  return async (request) => {
    const body = Buffer.from(await request.arrayBuffer());
    const headers = Object.fromEntries(request.headers);
    const incoming = await new Promise<IncomingMessage>((resolve, reject) => {
      httpsRequest(
        request.url,
        { method: request.method, headers, ca, signal: request.signal },
        resolve,
      )
        .on('error', (cause) => reject(new TypeError(`fetch failed: ${cause.message}`, { cause })))
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
  };
}
