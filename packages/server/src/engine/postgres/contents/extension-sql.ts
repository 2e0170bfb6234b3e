/**
 * Creates and drops extensions in the database of a tenant, as superuser.
 *
 * The script of an extension looks for its functions, operators and types first in the schema that
 * it is created in, and the owner of the database owns `public`. So an extension that PostgreSQL
 * does not trust is created in a schema that nobody else could write to, and moved from there
 * (docs/decisions/0040-extensions.md).
 */
import { randomBytes } from 'node:crypto';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import { DatabaseError, escapeIdentifier, type Client } from 'pg';
import { Refused } from '../../not-yet.ts';
import type { ControlFile } from './control-file.ts';
import { LIBRARIES } from '../../../domain/postgres/extension-rules.ts';
import { ownExtensionStatements } from '../../../domain/postgres/own-extension.ts';
import { withSuperuserSession } from '../sessions/superuser.ts';
import type { SocketPlace } from '../server-files.ts';

/** A server, and how to reach it. */
type At = {
  paths: SocketPlace;
  port: number;
  /** The one that every service has, by default. */
  database?: string;
};

/** Scripts take seconds; the largest, that of PostGIS, some ten on a slow disk. */
const SCRIPT_LIMIT_MS = 120_000;

const SYSTEM_SCHEMA = 'pg_catalog';

/** The versions of the extensions that the database of a service has, by name. */
export async function readCreated(at: At): Promise<ReadonlyMap<string, string>> {
  return inTenantsDatabase(at, async (client) => {
    const { rows } = await client.query<{ name: string; version: string }>(
      'select extname::text as name, extversion as version from pg_extension',
    );
    return new Map(rows.map(({ name, version }) => [name, version]));
  });
}

/** Creates an extension; one that exists stays as it is. @returns a line for the user */
export async function createExtension(at: At, control: ControlFile): Promise<string> {
  return inTenantsDatabase(at, async (client) => {
    if ((await schemaOf(client, control.name)) === null) await transact(client, creating(control));
    const { rows } = await client.query<{ version: string }>(
      'select extversion as version from pg_extension where extname = $1',
      [control.name],
    );
    return `${control.name} ${rows[0]?.version ?? ''} for ${ADMIN_ROLE}`;
  });
}

/** The statements that create an extension, in a transaction of their own. */
export function creating(control: ControlFile): string[] {
  // The objects of an extension belong to its creator: with ours, tsdbadmin could not use them.
  if (!control.superuser && !control.trusted)
    throw new Refused(
      `${control.name} needs no superuser: create it by SQL, as the list of extensions shows`,
    );
  const parameters = LIBRARIES[control.name]?.parameters ?? [];
  return [
    ...inSafeSchema(control),
    // From here on: only our own changes of catalogs.
    'set local allow_system_table_mods = on',
    ...ownExtensionStatements(control.name),
    ...parameters.map((parameter) => `grant set on parameter ${parameter} to ${ADMIN_ROLE}`),
  ];
}

function inSafeSchema({ name, schema, relocatable, trusted, requires }: ControlFile): string[] {
  const extension = escapeIdentifier(name);
  if (schema === SYSTEM_SCHEMA) return [`create extension ${extension}`];
  // With the schema of another extension in its path, it would find objects of that schema's owner.
  if (!trusted && requires.length > 0)
    throw new Refused(`${name} requires ${requires.join(', ')}, and PostgreSQL does not trust it`);
  if (schema === null && relocatable) {
    // A name that nobody can have taken.
    const fresh = escapeIdentifier(`howdah_${randomBytes(8).toString('hex')}`);
    return [
      `create schema ${fresh}`,
      `create extension ${extension} schema ${fresh}`,
      `alter extension ${extension} set schema public`,
      `drop schema ${fresh}`,
    ];
  }
  // The owner of the database could create it like this without us.
  if (trusted)
    return [`create extension ${extension} schema ${escapeIdentifier(schema ?? 'public')}`];
  // The first fails where a tenant has made the schema.
  const own = escapeIdentifier(schema ?? name);
  return [
    `create schema ${own}`,
    `create extension ${extension} schema ${own}`,
    `grant usage on schema ${own} to public`,
  ];
}

/** Drops an extension that nothing else depends on. @returns a line for the user */
export async function dropExtension(at: At, name: string): Promise<string> {
  return inTenantsDatabase(at, async (client) => {
    const schema = await schemaOf(client, name);
    if (schema === null) return 'it did not exist';
    const drop = `drop extension ${escapeIdentifier(name)} restrict`;
    const own = `drop schema ${escapeIdentifier(schema.name)} restrict`;
    await transact(client, schema.isOurs ? [drop, own] : [drop]);
    return 'with its objects';
  });
}

/** The schema of an extension; isOurs: made for it. null: there is no such extension. */
async function schemaOf(
  client: Client,
  name: string,
): Promise<{ name: string; isOurs: boolean } | null> {
  const { rows } = await client.query<{ name: string; isOurs: boolean }>(
    `select n.nspname::text as name,
       n.nspowner = 10 and n.nspname <> $2 and n.nspname <> 'public' as "isOurs"
     from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = $1`,
    [name, SYSTEM_SCHEMA],
  );
  return rows[0] ?? null;
}

/** @throws Refused with PostgreSQL's reason */
async function transact(client: Client, statements: readonly string[]): Promise<void> {
  try {
    await client.query(`begin; ${statements.join('; ')}; commit`);
  } catch (error) {
    if (!(error instanceof DatabaseError) || PASSES.test(error.code ?? '')) throw error;
    const detail = error.detail === undefined ? '' : `; ${error.detail.replaceAll('\n', ', ')}`;
    throw new Refused(`${error.message}${detail}`, { cause: error });
  }
}
/** Errors that end by themselves: of connections, resources, locks, shutdowns ([PG] A). */
const PASSES = /^(08|40|53|55P03|57)/;

function inTenantsDatabase<T>(
  { paths, port, database = DATABASE_NAME }: At,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  return withSuperuserSession(
    {
      server: paths,
      port,
      name: 'howdah extensions',
      database,
      limitMs: SCRIPT_LIMIT_MS,
    },
    work,
  );
}
