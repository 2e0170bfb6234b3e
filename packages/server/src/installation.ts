/** The files of an installation beside its metadata database: its credentials, and which control plane runs. */
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { BASE_PATH } from '@howdah/contract';
import { isWildcard, type Config } from './config.ts';
import { writeDurably } from './lib/durable.ts';
import { findProcess } from './lib/processes.ts';

/** What `credentials.json` holds: enough for a client to begin with. */
export type Credentials = {
  api_url: string;
  project_id: string;
  public_key: string;
  secret_key: string;
};

export function apiUrl(config: Pick<Config, 'host' | 'publicHost' | 'port' | 'tls'>): string {
  // A certificate from somewhere else carries the name that clients use, not an address.
  const host =
    config.tls.files !== null
      ? config.publicHost
      : isWildcard(config.host)
        ? '127.0.0.1'
        : config.host;
  return `${config.tls.on ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${config.port}${BASE_PATH}`;
}

export const credentialsPath = (home: string): string => join(home, 'credentials.json');

/** The credentials of an installation; null where there are none. */
export async function readCredentials(home: string): Promise<Credentials | null> {
  const parsed = await readJson(credentialsPath(home));
  const text = (name: string): string | null => {
    const value: unknown = parsed === null ? null : Reflect.get(parsed, name);
    return typeof value === 'string' ? value : null;
  };
  const [api_url, project_id, public_key, secret_key] = [
    text('api_url'),
    text('project_id'),
    text('public_key'),
    text('secret_key'),
  ];
  return api_url === null || project_id === null || public_key === null || secret_key === null
    ? null
    : { api_url, project_id, public_key, secret_key };
}

/** A control plane that runs: which process, and where it listens. */
export type Control = { pid: number; startTicks: string; apiUrl: string };

const controlPath = (home: string): string => join(home, 'control.json');

/** The control plane of an installation, if one runs. */
export async function findControl(home: string): Promise<Control | null> {
  const parsed = await readJson(controlPath(home));
  if (parsed === null || !('pid' in parsed) || !('startTicks' in parsed) || !('apiUrl' in parsed))
    return null;
  const control = {
    pid: Number(parsed.pid),
    startTicks: String(parsed.startTicks),
    apiUrl: String(parsed.apiUrl),
  };
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
export async function announceControl(
  config: Config,
  warn: (error: unknown) => void,
): Promise<() => void> {
  const self = await findProcess(process.pid);
  const control: Control = {
    pid: process.pid,
    startTicks: self?.startTicks ?? '',
    apiUrl: apiUrl(config),
  };
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
    throw new Error(
      `${path}: cannot be read: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
}
