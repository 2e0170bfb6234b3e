/** Where the API begins on its host: clients of Tiger Cloud expect the version in it. */
export const BASE_PATH = '/public/api/v1';

/** What kind of database a service is; each type promises its extensions. */
export const SERVICE_TYPES = ['TIMESCALEDB', 'POSTGRES', 'VECTOR'] as const;
export type ServiceType = (typeof SERVICE_TYPES)[number];

/** Capabilities asked for on create; `time-series` brings the extension timescaledb, `ai` brings vector. */
export const ADDONS = ['time-series', 'ai'] as const;
export type Addon = (typeof ADDONS)[number];

/** The extension that stands for each add-on, by its name in `create extension`. */
export const EXTENSION_OF_ADDON = { 'time-series': 'timescaledb', ai: 'vector' } as const satisfies Record<Addon, string>;
export type AddonExtension = (typeof EXTENSION_OF_ADDON)[Addon];

/** The add-ons that a type has when it is asked for by name. */
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

/** What a key may do: viewers read, developers do everything but manage keys and projects or delete PROD services. */
export const ROLES = ['admin', 'developer', 'viewer'] as const;
export type Role = (typeof ROLES)[number];

/** The database of every service, and the role its owner logs in with. */
export const DATABASE_NAME = 'tsdb';
export const ADMIN_ROLE = 'tsdbadmin';

/** Bounds of names (services, projects, keys), in characters. */
export const NAME_MAX_CHARACTERS = 128;
/** Bounds of a password given to updatePassword, in characters. */
export const PASSWORD_CHARACTERS = { min: 8, max: 128 } as const;
