import { EXTENSION_OF_ADDON, type Addon, type AddonExtension } from '@howdah/contract';

/**
 * Which extensions a service may have, and why. A tenant is hostile: an extension is judged by what
 * it lets the owner of a database do as superuser, on the machine, or over the network
 * (docs/decisions/0040-extensions.md).
 */
/** Facts of a control file. */
type Facts = { readonly name: string; readonly trusted: boolean; readonly superuser: boolean };

type Rule = { readonly allowed: boolean; readonly reason: string };

/** An extension whose library PostgreSQL must load at its start. */
type Library = {
  /** Background workers that it runs at most. */
  readonly workers: number;
  /** Parameters that tsdbadmin may set, which only a superuser could otherwise. */
  readonly parameters: readonly string[];
};

/** By the name of the extension, which is that of its library too. */
export const LIBRARIES: Readonly<Record<string, Library>> = {
  // The workers of TimescaleDB depend on the size: settings.ts.
  timescaledb: { workers: 0, parameters: [] },
  pgaudit: { workers: 0, parameters: ['pgaudit.log'] },
  // The first remembers the contents of the cache, the second fills it.
  pg_prewarm: { workers: 2, parameters: [] },
};

const allow = (reason: string): Rule => ({ allowed: true, reason });
const refuse = (reason: string): Rule => ({ allowed: false, reason });

const PROGRAMS = refuse('its functions run programs as the user of the server');
const NETWORK = refuse('it connects to other servers from the server, and reads files for that');
const SUPERUSER_ONLY = refuse('its functions are for superusers, and tsdbadmin is none');
const COUNTS = allow('its functions only count in pages, with the rights of pg_stat_scan_tables');

const RULES: Readonly<Record<string, Rule>> = {
  plpgsql: allow('every database has it'),
  pg_stat_statements: allow('every service has it'),
  timescaledb: allow('its jobs run as the role that adds them; it reaches no files or network'),
  vector: allow('a data type with its indexes; it reaches no files, programs or network'),
  hypopg: allow('it describes indexes to the planner of one session, and creates none'),
  pgaudit: allow('it writes statements to the server log, whose size is limited'),
  pg_prewarm: allow('it reads tables into the cache, for roles that may read them'),
  pgstattuple: COUNTS,
  pg_freespacemap: COUNTS,
  pg_visibility: COUNTS,
  pgrowlocks: COUNTS,
  postgis: allow('types and functions that compute; of files it opens only those of its library'),
  wal2json: allow('it formats the changes that a role with REPLICATION may read anyway'),
  postgis_raster: refuse('its drivers (GDAL) read files and the network for images'),
  pg_cron: refuse(
    'its launcher, a superuser, runs SQL in the database with the search_path of its owner',
  ),
  pg_repack: refuse('its client program needs a superuser'),
  http: refuse('its functions send requests to any address from the server'),
  pg_net: refuse('its worker, a superuser, sends requests to any address from the server'),
  dblink: NETWORK,
  postgres_fdw: NETWORK,
  mysql_fdw: NETWORK,
  tds_fdw: NETWORK,
  file_fdw: refuse('it reads files of the server and runs programs'),
  adminpack: refuse('it reads and writes files of the server'),
  dict_xsyn: refuse('it reads files of the server'),
  plperlu: PROGRAMS,
  plpython3u: PROGRAMS,
  pltclu: PROGRAMS,
  plsh: PROGRAMS,
  amcheck: refuse('its functions are for superusers; POST …/backups/verify checks the indexes'),
  pageinspect: SUPERUSER_ONLY,
  pg_buffercache: SUPERUSER_ONLY,
  pg_walinspect: SUPERUSER_ONLY,
  pg_logicalinspect: SUPERUSER_ONLY,
  pg_surgery: refuse('it damages tables'),
  earthdistance: refuse('its script finds functions of the owner of the database'),
};

/**
 * Extensions that tenants may create by SQL in each of their databases, although their authors do
 * not call them trusted: every service, or one of a type, begins with them. Their scripts, also
 * those that update them, were read: what they call by name they have created before, with the same
 * types of arguments, so a tenant's objects in the schema are no better match
 * (docs/decisions/0087-trusted-extensions.md).
 */
export const TRUSTED = ['vector', 'pg_stat_statements'] as const;

/** Whether PostgreSQL lets owners of databases create it, where servers see our control files. */
export const isTrustedByUs = (name: string): boolean => TRUSTED.some((one) => one === name);

/** Whether a service may have an extension. */
export function judge({ name, trusted, superuser }: Facts): Rule {
  const rule = RULES[name];
  if (rule !== undefined && Object.hasOwn(RULES, name)) return rule;
  if (trusted) return allow('PostgreSQL lets owners of databases create it: its authors trust it');
  return superuser
    ? refuse('it needs a superuser, and nobody has checked what it lets a tenant do')
    : allow('it needs no superuser: its objects belong to the role that creates it');
}

/** Whether its library must be loaded at the start of PostgreSQL. */
export const needsPreload = (name: string): boolean => Object.hasOwn(LIBRARIES, name);

/** The judged output plugins of logical decoding. */
export const OUTPUT_PLUGINS = ['wal2json'] as const;

/** The rule of an output plugin. */
export const ruleOfPlugin = (name: (typeof OUTPUT_PLUGINS)[number]): Rule =>
  RULES[name] ?? refuse('nobody has checked it');

// The extensions of a service.

type Extended = Readonly<{ addons: readonly Addon[]; preload: readonly string[] }>;

/** The extensions of add-ons. */
export const extensionsOf = (addons: readonly Addon[]): AddonExtension[] =>
  addons.map((addon) => EXTENSION_OF_ADDON[addon]);

/** The extensions of a service whose libraries may have to be loaded. */
export const loadedExtensions = ({ addons, preload }: Extended): string[] => [
  ...new Set<string>([...extensionsOf(addons), ...preload]),
];

/** The libraries that its servers load at their start. */
export const loadedLibraries = ({ addons, preload }: Extended): string[] => [
  ...new Set<string>([...extensionsOf(addons).filter(needsPreload), ...preload]),
];
