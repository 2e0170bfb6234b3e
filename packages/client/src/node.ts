/**
 * The API's address and key for a client in Node: from arguments, then the environment, then the
 * file that `howdah up` writes.
 */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { createClient, type ClientOptions, type HowdahClient } from './client.ts';

export type Settings = { apiUrl: string; key: string; projectId: string };

export type Connection = Settings & { client: HowdahClient };

/** No address, key or project was found; the message names the places that were searched. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';
}

/**
 * A client and the project it is for.
 *
 * Each setting comes from the argument; else from the environment, as `howdah env` prints it
 * (`HD_API`, `HD_KEY`, and `HD_PROJECT`, which ends with the project's id); else from
 * `credentials.json` in `HOWDAH_HOME` or `~/.howdah`.
 *
 * @throws SettingsError
 */
export async function connect(
  given: Partial<Settings> & Pick<ClientOptions, 'retries'> = {},
): Promise<Connection> {
  const { retries, ...settings } = given;
  const found = await findSettings(settings);
  const client = createClient({
    apiUrl: found.apiUrl,
    key: found.key,
    ...(retries === undefined ? {} : { retries }),
  });
  return { ...found, client };
}

/** The settings of {@link connect}. @throws SettingsError */
export async function findSettings(
  given: Partial<Settings> = {},
  env: NodeJS.ProcessEnv = process.env,
): Promise<Settings> {
  const { HD_API, HD_KEY, HD_PROJECT } = env;
  const known = {
    apiUrl: given.apiUrl ?? HD_API,
    key: given.key ?? HD_KEY,
    projectId: given.projectId ?? HD_PROJECT?.replace(/^.*\//, ''),
  };
  if (isComplete(known)) return known;
  const path = join(
    resolve((env['HOWDAH_HOME'] || '~/.howdah').replace(/^~(?=\/|$)/, homedir())),
    'credentials.json',
  );
  const file = await readCredentials(path);
  const all = {
    apiUrl: known.apiUrl ?? file.apiUrl,
    key: known.key ?? file.key,
    projectId: known.projectId ?? file.projectId,
  };
  if (isComplete(all)) return all;
  const missing = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [name] : [],
  );
  throw new SettingsError(
    `${missing.join(', ')}: not given, not in the environment (eval "$(howdah env)" sets HD_API, HD_KEY and HD_PROJECT) and not in ${path}, which howdah up writes`,
  );
}

type Found = { [Name in keyof Settings]: string | undefined };

const isComplete = (found: Found): found is Settings =>
  Object.values(found).every((value) => value !== undefined);

/** @throws SettingsError for a file that exists and cannot be read, or is not JSON */
async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new SettingsError(`${path}: ${reason}; it must be readable, and as howdah up wrote it`, {
      cause: error,
    });
  }
}

async function readCredentials(path: string): Promise<Found> {
  const nothing: Found = { apiUrl: undefined, key: undefined, projectId: undefined };
  if (!existsSync(path)) return nothing;
  const parsed = await readJson(path);
  const textAt = (name: string): string | undefined => {
    const value: unknown =
      typeof parsed === 'object' && parsed !== null ? Reflect.get(parsed, name) : undefined;
    return typeof value === 'string' ? value : undefined;
  };
  const [publicKey, secretKey] = [textAt('public_key'), textAt('secret_key')];
  return {
    apiUrl: textAt('api_url'),
    key:
      publicKey === undefined || secretKey === undefined ? undefined : `${publicKey}:${secretKey}`,
    projectId: textAt('project_id'),
  };
}
