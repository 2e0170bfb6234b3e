/**
 * The API's address and key for a client in Node: from arguments, then the environment, then the
 * file that `howdah up` writes.
 */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createClient, type ClientOptions, type HowdahClient } from './client.ts';
import {
  EnvironmentError,
  isSameOrigin,
  readApi,
  readHome,
  readKey,
  readProject,
} from './environment.ts';

export {
  EnvironmentError,
  problemOfHome,
  readApi,
  readHome,
  readSettings,
  readText,
} from './environment.ts';

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

/** The settings of {@link connect}. @throws SettingsError; EnvironmentError */
export async function findSettings(
  given: Partial<Settings> = {},
  env: NodeJS.ProcessEnv = process.env,
): Promise<Settings> {
  const { all, path } = await gather(given, env);
  if (isComplete(all)) return all;
  const missing = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [name] : [],
  );
  throw new SettingsError(
    `${missing.join(', ')}: not given, not in the environment (eval "$(howdah env)" sets ` +
      `HD_API, HD_KEY and HD_PROJECT) and not in ${path}, which howdah up writes`,
  );
}

/** The API and the key alone: a key knows its project. @throws SettingsError; EnvironmentError */
export async function findApi(
  env: NodeJS.ProcessEnv = process.env,
): Promise<Pick<Settings, 'apiUrl' | 'key'>> {
  const { projectId: _any, ...found } = await findSettings({ projectId: '' }, env);
  return found;
}

async function gather(
  given: Partial<Settings>,
  env: NodeJS.ProcessEnv,
): Promise<{ all: Found; path: string }> {
  const project = given.projectId === undefined ? readProject(env['HD_PROJECT']) : undefined;
  const known = {
    apiUrl: given.apiUrl ?? readApi(env['HD_API']),
    key: given.key ?? readKey(env['HD_KEY']),
    projectId: given.projectId ?? project?.id,
  };
  const path = join(readHome(env['HOWDAH_HOME']), 'credentials.json');
  const file = isComplete(known) ? NOTHING : await readCredentials(path);
  const apiUrl = known.apiUrl ?? file.apiUrl;
  const api = apiUrl ?? '';
  // A key is sent to the API that it is of, and to no other.
  const isTheirs = file.apiUrl !== undefined && isSameOrigin(file.apiUrl, api);
  if (known.key === undefined && file.key !== undefined && !isTheirs)
    throw new EnvironmentError(
      `HD_KEY: is not set, and HD_API names ${api}; ` +
        `the key in ${path} is of ${file.apiUrl}: set HD_KEY too`,
    );
  const named = project?.apiOrigin ?? null;
  if (named !== null && apiUrl !== undefined && !isSameOrigin(named, apiUrl))
    throw new EnvironmentError(
      `HD_PROJECT: is a project of ${named}, and the API is ${apiUrl}; ` +
        'set HD_API, HD_KEY and HD_PROJECT from one installation (eval "$(howdah env)"), ' +
        'or HD_PROJECT to the id alone',
    );
  const all = {
    apiUrl,
    key: known.key ?? file.key,
    projectId: known.projectId ?? file.projectId,
  };
  return { all, path };
}

type Found = { [Name in keyof Settings]: string | undefined };

const NOTHING: Found = { apiUrl: undefined, key: undefined, projectId: undefined };

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
  if (!existsSync(path)) return NOTHING;
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
