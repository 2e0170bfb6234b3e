/** Where the API begins on its host: clients of Tiger Cloud expect the version in it. */
export const BASE_PATH = '/public/api/v1';

/**
 * The oldest major version of PostgreSQL that services run (docs/decisions/0004-postgresql-16.md).
 */
export const OLDEST_PG_VERSION = 16;

/** The kind of database that a service is; each type promises its extensions. */
export const SERVICE_TYPES = ['TIMESCALEDB', 'POSTGRES', 'VECTOR'] as const;
export type ServiceType = (typeof SERVICE_TYPES)[number];

/**
 * Capabilities that a create may request; `time-series` brings the extension timescaledb, `ai`
 * brings vector.
 */
export const ADDONS = ['time-series', 'ai'] as const;
export type Addon = (typeof ADDONS)[number];

/** The extensions of add-ons, by their names in `create extension`. */
export const ADDON_EXTENSIONS = ['timescaledb', 'vector'] as const;
export type AddonExtension = (typeof ADDON_EXTENSIONS)[number];
export const EXTENSION_OF_ADDON = {
  'time-series': 'timescaledb',
  ai: 'vector',
} as const satisfies Record<Addon, AddonExtension>;

/** Parts of every service: the functions of Howdah are members of the first. */
const ALWAYS: ReadonlySet<string> = new Set(['plpgsql', 'pg_stat_statements']);

/** Why a service with these add-ons keeps an extension; null: it can be disabled. */
export function whyKept(name: string, addons: readonly Addon[]): string | null {
  return ALWAYS.has(name) || addons.some((addon) => EXTENSION_OF_ADDON[addon] === name)
    ? `${name} belongs to every service of this type; it cannot be disabled`
    : null;
}

/** The add-ons of a type that is requested by name. */
export const ADDONS_OF_TYPE: Record<ServiceType, readonly Addon[]> = {
  POSTGRES: [],
  TIMESCALEDB: ['time-series'],
  VECTOR: ['ai'],
};

/** The type of a service with these add-ons: time-series wins over ai, none is plain PostgreSQL. */
export function typeOfAddons(addons: readonly Addon[]): ServiceType {
  if (addons.includes('time-series')) return 'TIMESCALEDB';
  return addons.includes('ai') ? 'VECTOR' : 'POSTGRES';
}

export const ENVIRONMENTS = ['DEV', 'PROD'] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

/** The role of a key: what it may do is in permissions.ts. */
export const ROLES = ['admin', 'developer', 'viewer'] as const;
export type Role = (typeof ROLES)[number];

/**
 * The most projects of an installation, and keys, VPCs, allow lists, exporters, destinations of
 * alerts of a project.
 */
export const MAX_PROJECTS = 10_000;
export const MAX_KEYS = 1000;
export const MAX_VPCS = 50;
export const MAX_ALLOW_LISTS = 50;
export const MAX_EXPORTERS = 20;
export const MAX_DESTINATIONS = 20;
/** The most networks of an allow list. */
export const MAX_CIDR_BLOCKS = 100;
/** How long a key is listed after it was revoked or has expired. */
export const ENDED_KEYS_KEPT_DAYS = 30;

/** The database of every service, and the role with which its owner logs in. */
export const DATABASE_NAME = 'tsdb';
export const ADMIN_ROLE = 'tsdbadmin';

/**
 * Whether the name of a role is one of Howdah's own, which it makes in servers when it needs them.
 * A user who has made such a role may become it, so that statements or a pooler are refused.
 */
export const isReservedRole = (name: string): boolean => /^_?howdah/.test(name);
/** The name under which a pooler offers the same database, pooling by transaction. */
export const TRANSACTION_POOL_NAME = 'tsdb_transaction';

/** The most HA replicas of a service. */
export const MAX_REPLICAS = 2;

/**
 * How a VPC keeps other clients out: by a network of its own, or by rules for
 * the addresses of clients.
 */
export const VPC_METHODS = ['bridge', 'address'] as const;
export type VpcMethod = (typeof VPC_METHODS)[number];

/**
 * A peering waits for the other side (pending), is being made (approved) or exists (active). It has
 * ended if it can never exist (invalid), was never answered (timeout), or was ended by the other
 * side (disabled).
 */
export const PEERING_STATUSES = [
  'pending',
  'approved',
  'active',
  'invalid',
  'timeout',
  'disabled',
] as const;
export type PeeringStatus = (typeof PEERING_STATUSES)[number];

/** The most peerings of one VPC. */
export const MAX_PEERINGS = 50;

/**
 * The most nodes of a read replica set, and of all sets of a service: each takes one of the
 * connections by which the primary is followed.
 */
export const MAX_NODES = 10;
export const MAX_NODES_OF_SERVICE = 20;

/**
 * For which reads a set is: `reports` take long, and see rows that the primary keeps for them;
 * `lookups` are short, and cost the primary nothing.
 */
export const SET_PURPOSES = ['reports', 'lookups'] as const;
export type SetPurpose = (typeof SET_PURPOSES)[number];

/** Bounds of names (services, projects, keys), in characters. */
export const NAME_MAX_CHARACTERS = 128;
/** Bounds of a password given to updatePassword, in characters. */
export const PASSWORD_CHARACTERS = { min: 8, max: 128 } as const;

/**
 * A header that the web console sends with each request. Pages of other sites cannot send it, so
 * only the console can use a session.
 */
export const CONSOLE_HEADER = 'x-howdah-console';
