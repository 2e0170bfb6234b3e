/** Which packages bring an extension to the PostgreSQL of this machine. */
import { EXTENSION_NAME_PATTERN, OLDEST_PG_VERSION } from '@howdah/contract';
import { exists } from '../../../lib/processes.ts';
import { entriesOf } from '../postgres/installations.ts';

/** Debian's packages whose names are not those of their extensions. */
const SUFFIXES: Readonly<Record<string, string>> = {
  vector: 'pgvector',
  postgis: 'postgis-3',
  postgis_raster: 'postgis-3',
  postgis_topology: 'postgis-3',
  pg_cron: 'cron',
  pg_partman: 'partman',
  pg_repack: 'repack',
  pg_similarity: 'similarity',
  pg_qualstats: 'pg-qualstats',
  plpython3u: 'plpython3',
  plperl: 'plperl',
  plperlu: 'plperl',
  pltcl: 'pltcl',
};

/** Debian's packages put each major version into a directory of its own. */
const DEBIAN_VERSIONS = '/usr/lib/postgresql';
const APT_GET = '/usr/bin/apt-get';

/** Part of the packages of the server itself. */
const OF_SERVER = 'postgresql';

export type InstallPlan =
  | { readonly what: string; readonly command: readonly string[]; readonly canRun: boolean }
  | { readonly why: string };

/** Plans to install an extension for each PostgreSQL that the system has. */
export async function planInstall(name: string): Promise<InstallPlan> {
  if (!new RegExp(EXTENSION_NAME_PATTERN).test(name))
    return { why: `extension: found ${JSON.stringify(name)}; expected a name like postgis` };
  const majors = (await entriesOf(DEBIAN_VERSIONS))
    .map(Number)
    .filter((major) => major >= OLDEST_PG_VERSION);
  if (majors.length === 0)
    return {
      why:
        `${name}: the system has no PostgreSQL, and the one that npm brought takes no packages; ` +
        `on Debian 13 first: apt-get install ${OF_SERVER}-17`,
    };
  const isRoot = process.getuid?.() === 0;
  return planFor(name, majors, isRoot && (await exists(APT_GET)));
}

/** @param canRun whether apt-get can be run here */
export function planFor(name: string, majors: readonly number[], canRun: boolean): InstallPlan {
  const suffix = SUFFIXES[name] ?? name.replaceAll('_', '-');
  const packages = majors.map((major) => `${OF_SERVER}-${major}-${suffix}`);
  return {
    what: `${name} for PostgreSQL ${majors.join(' and ')}`,
    command: ['apt-get', 'install', '--yes', '--no-install-recommends', ...packages],
    canRun,
  };
}
