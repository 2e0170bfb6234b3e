import { createClient, type HowdahClient } from '@howdah/client';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { readFile } from 'node:fs/promises';
import { Failure } from './output.ts';

export type Connection = { client: HowdahClient; projectId: string; apiUrl: string };

/** What `credentials.json` says. `key` is what `Authorization: Bearer` takes. */
export type Credentials = { apiUrl: string; projectId: string; key: string };

/** The installation's directory, without the checks of a start. */
export function homeDirectory(): string {
  return resolve((process.env['HOWDAH_HOME'] || '~/.howdah').replace(/^~(?=\/|$)/, homedir()));
}

/** The credentials of the installation, where this user can read them. */
export async function credentials(): Promise<Credentials> {
  const path = join(homeDirectory(), 'credentials.json');
  const text = await readFile(path, 'utf8').catch(() => {
    throw new Failure(`${path} cannot be read: start an installation with howdah up, or name its directory in HOWDAH_HOME`);
  });
  const parsed: unknown = JSON.parse(text);
  const member = (name: string): string => {
    const value: unknown = typeof parsed === 'object' && parsed !== null ? Reflect.get(parsed, name) : undefined;
    if (typeof value !== 'string') throw new Failure(`${path}: ${name} is missing`);
    return value;
  };
  return { apiUrl: member('api_url'), projectId: member('project_id'), key: `${member('public_key')}:${member('secret_key')}` };
}

/** The API of the installation whose `credentials.json` this user can read. */
export async function connect(): Promise<Connection> {
  const { apiUrl, projectId, key } = await credentials();
  return { client: createClient({ apiUrl, key }), projectId, apiUrl };
}

/** Says in words what a call that got no answer means. */
export async function answered<T>(connection: Connection, call: Promise<{ data?: T }>): Promise<T> {
  try {
    const { data } = await call;
    if (data === undefined) throw new Failure('the server answered without a body');
    return data;
  } catch (error) {
    if (error instanceof TypeError)
      throw new Failure(`no answer from ${connection.apiUrl}: is the control plane up? (howdah status, howdah up)`);
    throw error;
  }
}
