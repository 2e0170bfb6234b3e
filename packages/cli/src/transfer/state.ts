/**
 * Imports that are under way: a directory for each, of the user's own, so that an import continues
 * after its process was killed. It holds passwords, so nobody else may read it.
 */
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Failure } from '../exit.ts';
import type { Hypertable } from './catalog.ts';
import type { Copied } from './copy.ts';
import type { Endpoint } from './endpoint.ts';

/**
 * copy: rows are copied, from the beginning if it is interrupted. finish: all rows are there;
 * indexes and the rest of the schema follow. follow: changes of the source are applied.
 */
export type Stage = 'copy' | 'finish' | 'follow';

export type State = {
  edition: 1;
  service: { id: string; name: string };
  source: Endpoint;
  target: Endpoint;
  follow: boolean;
  jobs: number;
  stage: Stage;
  /** Whether the schema may be there already, from an interrupted copy. */
  begun: boolean;
  /** The version of the source. */
  major: number;
  copied: Copied[];
  hypertables: Hypertable[];
  /** Ids of entries of the archive: keys that come before the rows, and what is not restored. */
  keys: string[];
  skipped: string[];
};

/** The directory of the imports of this user. */
function stateDirectory(): string {
  const base = process.env['XDG_STATE_HOME'] || join(homedir(), '.local', 'state');
  return join(base, 'howdah', 'imports');
}

export const directoryOf = (serviceId: string): string => join(stateDirectory(), serviceId);
export const archiveOf = ({ service }: State): string =>
  join(directoryOf(service.id), 'schema.dump');
export const listOf = ({ service }: State): string => join(directoryOf(service.id), 'entries');

/** The name of the sessions, the slot and the publication of an import. */
export const applicationOf = ({ service }: Pick<State, 'service'>): string =>
  `howdah import ${service.id}`;
export const slotOf = ({ service }: Pick<State, 'service'>): string =>
  `howdah_import_${service.id}`;

/** Writes the state, whole or not at all. */
export async function saveState(state: State): Promise<void> {
  const directory = directoryOf(state.service.id);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, 'state.json');
  const file = await open(`${path}.new`, 'w', 0o600);
  try {
    await file.writeFile(JSON.stringify(state));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
}

/** The import into a service, by its id or name. @throws Failure notFound */
export async function loadState({ id, name }: { id: string; name: string }): Promise<State> {
  const ids = await readdir(stateDirectory()).catch(() => []);
  const states = (await Promise.all(ids.map(readState))).flatMap((state) => state ?? []);
  const found =
    states.find(({ service }) => service.id === id) ??
    states.find(({ service }) => service.name === name);
  if (found !== undefined) return found;
  const others = states.map(({ service }) => `${service.name} (${service.id})`).join(', ');
  throw new Failure(
    `no import into ${name} is under way for this user on this ` +
      `machine${others === '' ? '' : `; there are imports into ${others}`}`,
    'notFound',
  );
}

/** Whether an import into a service can be continued. */
export const hasState = async (id: string): Promise<boolean> => (await readState(id)) !== null;

async function readState(id: string): Promise<State | null> {
  try {
    const text = await readFile(join(directoryOf(id), 'state.json'), 'utf8');
    const state: unknown = JSON.parse(text);
    return isState(state) ? state : null;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}

/** Only this program writes the file, in a directory that only its user can write. */
function isState(value: unknown): value is State {
  return typeof value === 'object' && value !== null && 'edition' in value && value.edition === 1;
}

export async function removeState({ service }: Pick<State, 'service'>): Promise<void> {
  await rm(directoryOf(service.id), { recursive: true, force: true });
}
