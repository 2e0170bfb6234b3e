import { createClient, type ClientOptions, type HowdahClient } from '@howdah/client';
import { findApi, findSettings, readApi, readHome, type Settings } from '@howdah/client/node';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { readFile } from 'node:fs/promises';
import { Failure } from './exit.ts';
import { note, paintNote } from './output.ts';
import { makeFetch } from './transport.ts';

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
