/** What an installation keeps beside its metadata database: the first key, and which control plane runs. */
import { readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { BASE_PATH } from '@howdah/contract';
import { issueToken, linkPath } from './api/console.ts';
import { isWildcard, type Config } from './config.ts';
import { writeDurably } from './durable.ts';
import { findProcess, isErrno } from './engine/local/processes.ts';
import { newId } from './ids.ts';
import { sha256 } from './secret.ts';
import { newPublicKey, newSecret } from './services/projects.ts';
import type { Store } from './store/database.ts';
import { insertKey, isKey } from './store/keys.ts';
import { anyProject, insertProject } from './store/projects.ts';

/** What `credentials.json` holds: enough for a client to begin with. */
export type Credentials = { api_url: string; project_id: string; public_key: string; secret_key: string };

export function apiUrl(config: Pick<Config, 'host' | 'publicHost' | 'port' | 'tls'>): string {
  // A certificate from somewhere else carries the name that clients use, not an address.
  const host = config.tls.files !== null ? config.publicHost : isWildcard(config.host) ? '127.0.0.1' : config.host;
  return `${config.tls.on ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${config.port}${BASE_PATH}`;
}

export const credentialsPath = (home: string): string => join(home, 'credentials.json');

/** At the first start: a project and an admin key, whose secret stands in `credentials.json` and nowhere else. */
export async function ensureFirstKey(store: Store, config: Config): Promise<void> {
  if (await anyProject(store.db)) {
    await followApiUrl(config);
    return;
  }
  const credentials: Credentials = {
    api_url: apiUrl(config),
    project_id: newId(),
    public_key: newPublicKey(),
    secret_key: newSecret(),
  };
  await keepFormerCredentials(config.home);
  // The file first: a start interrupted between the two writes it again with another key.
  await writeDurably(credentialsPath(config.home), `${JSON.stringify(credentials, null, 2)}\n`, 0o600);
  await store.db.transaction().execute(async (tx) => {
    await insertProject(tx, { id: credentials.project_id, name: 'default', operator: true });
    await insertKey(tx, {
      publicKey: credentials.public_key,
      secretHash: sha256(credentials.secret_key),
      projectId: credentials.project_id,
      name: 'first admin key',
      role: 'admin',
    });
  });
}

/** Records that are empty may mean another DATABASE_URL: the key to the former ones is put aside, not overwritten. */
async function keepFormerCredentials(home: string): Promise<void> {
  const path = credentialsPath(home);
  const aside = `${path}.until-${new Date().toISOString().replaceAll(/[-:.]/g, '')}`;
  await rename(path, aside).catch((error: unknown) => {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  });
}

/** The API may have moved to another port since. */
async function followApiUrl(config: Config): Promise<void> {
  const credentials = await readCredentials(config.home);
  if (credentials === null || credentials.api_url === apiUrl(config)) return;
  const text = `${JSON.stringify({ ...credentials, api_url: apiUrl(config) }, null, 2)}\n`;
  await writeDurably(credentialsPath(config.home), text, 0o600).catch((error: unknown) => {
    // The next start writes it: the key is the same, and --port names the address meanwhile.
    if (!isErrno(error, 'ENOSPC', 'EDQUOT')) throw error;
  });
}

/** The credentials of an installation; null where there are none. */
export async function readCredentials(home: string): Promise<Credentials | null> {
  const parsed = await readJson(credentialsPath(home));
  const text = (name: string): string | null => {
    const value: unknown = parsed === null ? null : Reflect.get(parsed, name);
    return typeof value === 'string' ? value : null;
  };
  const [api_url, project_id, public_key, secret_key] = [text('api_url'), text('project_id'), text('public_key'), text('secret_key')];
  return api_url === null || project_id === null || public_key === null || secret_key === null
    ? null
    : { api_url, project_id, public_key, secret_key };
}

/** A link that opens the web console once, with the key of `credentials.json`; where that is no more, the console's address. */
export async function consoleLink(store: Store, config: Config): Promise<string> {
  const credentials = await readCredentials(config.home);
  const known = credentials !== null && (await isKey(store.db, credentials.public_key));
  const path = known ? linkPath((await issueToken(store, 'link', credentials.public_key)).token) : '/';
  return new URL(path, apiUrl(config)).href;
}

/** A control plane that runs: which process, and where it listens. */
export type Control = { pid: number; startTicks: string; apiUrl: string };

const controlPath = (home: string): string => join(home, 'control.json');

/** The control plane of an installation, if one runs. */
export async function findControl(home: string): Promise<Control | null> {
  const parsed = await readJson(controlPath(home));
  if (parsed === null || !('pid' in parsed) || !('startTicks' in parsed) || !('apiUrl' in parsed)) return null;
  const control = { pid: Number(parsed.pid), startTicks: String(parsed.startTicks), apiUrl: String(parsed.apiUrl) };
  const found = await findProcess(control.pid);
  return found?.startTicks === control.startTicks ? control : null;
}

/** How often a file that found no space is written again. */
const WRITE_AGAIN_MS = 5000;

/**
 * Says that this process is the installation's control plane. On a full disk it serves without, and says so as soon as there is space.
 *
 * @returns ends the attempts
 */
export async function announceControl(config: Config, warn: (error: unknown) => void): Promise<() => void> {
  const self = await findProcess(process.pid);
  const control: Control = { pid: process.pid, startTicks: self?.startTicks ?? '', apiUrl: apiUrl(config) };
  let timer: NodeJS.Timeout | undefined;
  const announce = async (): Promise<void> => {
    try {
      await writeDurably(controlPath(config.home), JSON.stringify(control), 0o644);
    } catch (error) {
      warn(error);
      timer = setTimeout(() => void announce(), WRITE_AGAIN_MS).unref();
    }
  };
  await announce();
  return () => clearTimeout(timer);
}

export async function retractControl(home: string): Promise<void> {
  await rm(controlPath(home), { force: true });
}

async function readJson(path: string): Promise<object | null> {
  try {
    const parsed: unknown = JSON.parse(await readFile(path, 'utf8'));
    return typeof parsed === 'object' ? parsed : null;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw new Error(`${path}: cannot be read: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}
