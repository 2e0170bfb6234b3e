/** Schemas of extensions: what the PostgreSQL of a region has, and what a service has enabled. */
import { Type } from 'typebox';
import { Named, StringEnum } from '../schema.ts';

/** output_plugin: a plugin of logical decoding, which no statement creates. */
export const EXTENSION_KINDS = ['extension', 'output_plugin'] as const;
export type ExtensionKind = (typeof EXTENSION_KINDS)[number];

/** The parts of TimescaleDB that an installation has. */
export const TIMESCALEDB_EDITIONS = ['apache', 'community'] as const;
export type TimescaledbEdition = (typeof TIMESCALEDB_EDITIONS)[number];

/** unknown: the service does not run. */
export const EXTENSION_STATES = ['enabled', 'disabled', 'unknown'] as const;
export type ExtensionState = (typeof EXTENSION_STATES)[number];

/** Names of extensions. */
export const EXTENSION_NAME_PATTERN = '^[a-z][a-z0-9_-]{0,62}$';

/** Facts of an installed extension. */
const facts = {
  name: Type.String(),
  kind: StringEnum(EXTENSION_KINDS, {
    description: 'output_plugin: for logical replication slots; it needs no extension',
  }),
  default_version: Type.Optional(
    Type.String({ description: 'the version that a new one gets; a plugin has none' }),
  ),
  versions: Type.Array(Type.String(), { description: 'the versions that can be created' }),
  comment: Type.String({ description: 'what it is, in the words of its authors' }),
  requires: Type.Array(Type.String(), { description: 'extensions that it needs' }),
  allowed: Type.Boolean({ description: 'whether a service may have it' }),
  reason: Type.String({ description: 'why it is allowed, or why it is not' }),
  statement: Type.Optional(
    Type.String({ description: 'the statement with which tsdbadmin creates it without this API' }),
  ),
  preload: Type.Boolean({
    description: 'whether enabling it restarts the service: PostgreSQL loads it at its start',
  }),
  package: Type.Optional(Type.String({ description: 'the package that brings it' })),
} as const;

export const ExtensionSchema = Named('Extension', Type.Object(facts));
export type Extension = Type.Static<typeof ExtensionSchema>;

export const InstalledExtensionsSchema = Named(
  'InstalledExtensions',
  Type.Object({
    region_code: Type.String(),
    postgres_version: Type.String(),
    source: Type.String({ description: 'system: of a package of the system; npm: of npm' }),
    timescaledb_edition: Type.Optional(
      StringEnum(TIMESCALEDB_EDITIONS, {
        description: 'apache lacks compression, continuous aggregates and policies',
      }),
    ),
    extensions: Type.Array(ExtensionSchema),
  }),
);
export type InstalledExtensions = Type.Static<typeof InstalledExtensionsSchema>;

export const ServiceExtensionSchema = Named(
  'ServiceExtension',
  Type.Object({
    ...facts,
    state: StringEnum(EXTENSION_STATES, {
      description: 'whether the database has it; unknown: the service does not run',
    }),
    version: Type.Optional(Type.String({ description: 'the version that the database has' })),
    kept: Type.Optional(
      Type.String({ description: 'why it cannot be disabled; absent: the type does not need it' }),
    ),
  }),
);
export type ServiceExtension = Type.Static<typeof ServiceExtensionSchema>;

export const EnableExtensionBody = Named(
  'EnableExtension',
  Type.Object({
    name: Type.String({
      pattern: EXTENSION_NAME_PATTERN,
      description: 'the name of an extension that is installed and allowed',
    }),
  }),
);
export type EnableExtensionBody = Type.Static<typeof EnableExtensionBody>;
