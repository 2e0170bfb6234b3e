/**
 * The files of an installation beside its metadata database: its credentials, which control plane
 * runs, and where the data of its regions is.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { BASE_PATH } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { ConfigError, isWildcard, type Config } from './config.ts';
import { LOCAL_REGION, type FurtherRegion } from './settings.ts';
import { writeDurably } from './lib/durable-files.ts';
import { exists, findProcess, noneOf } from './lib/processes.ts';

/** The contents of `credentials.json`: enough for a client to begin with. */
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
  const scheme = config.tls.on ? 'https' : 'http';
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${config.port}${BASE_PATH}`;
}

export const credentialsPath = (home: string): string => join(home, 'credentials.json');

/** Where the first key is until the metadata database has it. */
export const firstKeyPath = (home: string): string => join(home, 'first-key.json');

/** The credentials of an installation; null where there are none. */
export async function readCredentials(
  home: string,
  pathIn = credentialsPath,
): Promise<Credentials | null> {
  const parsed = await readJson(pathIn(home));
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
 * Says that this process is the installation's control plane. On a full disk it serves without, and
 * says so as soon as there is space.
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

/** Where the data of a region is. */
export type RegionPlace = Pick<FurtherRegion, 'code' | 'directory'>;

const REGIONS_FILE = 'regions.json';
/** In the directory of a further region: which one, and of which installation. */
const REGION_FILE = 'region.json';

/**
 * The places of all regions that an installation has ever had on this machine, the first one first.
 * Commands read them from a file, since the settings may be known to the control plane alone.
 */
export async function readRegionPlaces(home: string): Promise<RegionPlace[]> {
  return [{ code: LOCAL_REGION, directory: home }, ...(await readFurtherPlaces(home))];
}

async function readFurtherPlaces(home: string): Promise<RegionPlace[]> {
  const found: unknown = await readJson(join(home, REGIONS_FILE));
  return Array.isArray(found) ? found.flatMap((entry) => placeOf(entry) ?? []) : [];
}

function placeOf(entry: unknown): RegionPlace | null {
  if (typeof entry !== 'object' || entry === null || !('code' in entry) || !('directory' in entry))
    return null;
  return { code: String(entry.code), directory: String(entry.directory) };
}

/** Records where regions are; one that is not set at the moment keeps its place. */
export async function recordRegionPlaces(
  home: string,
  regions: readonly RegionPlace[],
): Promise<void> {
  const before = await readFurtherPlaces(home);
  const places = new Map(
    [...before, ...regions].map(({ code, directory }) => [code, { code, directory }]),
  );
  const after = JSON.stringify([...places.values()], null, 2);
  if (after !== JSON.stringify(before, null, 2))
    await writeDurably(join(home, REGIONS_FILE), after, 0o644);
}

/**
 * Makes a directory the place of a further region, unless it is. The mark that it gets is missing
 * from a disk that is not mounted: services would be created again there, with empty databases.
 *
 * @param isInUse whether the region has services, whose data must be there
 * @throws ConfigError if the data is not there, or the directory holds something else
 */
export async function claimRegionDirectory(
  home: string,
  { code, directory }: RegionPlace,
  isInUse: boolean,
): Promise<void> {
  const refuse = (why: string): never => {
    throw new ConfigError(`HOWDAH_REGIONS: ${directory} of ${code} ${why}`);
  };
  const path = join(directory, REGION_FILE);
  const mark = await readJson(path);
  if (mark === null) {
    if (isInUse)
      refuse(
        'does not hold the data of its services: mount its disk, correct the directory, ' +
          'or start without the region',
      );
    const entries = (await readdir(directory).catch(noneOf('ENOENT'))) ?? [];
    if (entries.some((name) => name !== 'lost+found'))
      refuse('is not empty, and not the directory of a region: choose an empty or a new one');
    await mkdir(directory, { recursive: true, mode: 0o755 });
  } else {
    const [owner, of]: unknown[] = [Reflect.get(mark, 'home'), Reflect.get(mark, 'code')];
    if (of !== code)
      refuse(`holds the region ${String(of)}: name it so, or choose another directory`);
    if (owner === home) return;
    const others = typeof owner === 'string' ? await readFurtherPlaces(owner) : [];
    if (others.some((other) => other.directory === directory))
      refuse(`is in use by the installation in ${String(owner)}: choose another directory`);
  }
  await writeDurably(path, JSON.stringify({ code, home }), 0o644);
}

/** @throws Error for a file that is there and cannot be read */
export async function readJson(path: string): Promise<object | null> {
  try {
    const parsed: unknown = JSON.parse(await readFile(path, 'utf8'));
    return typeof parsed === 'object' ? parsed : null;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw new Error(`${path}: cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/** Made once, for all control planes of an installation in a cluster: docs/kubernetes.md. */
const SHARED_FILES = ['ca/ca.pem', 'ca/ca.key', 'secrets.key', 'credentials.json'];

/** @throws ConfigError if a control plane would make a file of its own that all must share */
export async function refuseMissingFiles(home: string): Promise<void> {
  for (const name of SHARED_FILES)
    if (!(await exists(join(home, name))))
      throw new ConfigError(
        `HOWDAH_LOCAL_REGION: found no, and ${join(home, name)} is missing; all control planes ` +
          'of the installation need the same one: deploy/kubernetes/make-files makes it',
      );
}

/** The file that is there while `howdah recover` is under way, or was interrupted. */
export const recoveryPath = (home: string): string => join(home, 'recover.json');
