/** Brings the tables of the metadata database up to date. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Kysely, Migrator, PostgresDialect, sql } from 'kysely';
import { type ClientConfig, Pool } from 'pg';
import { MIGRATIONS_DIRECTORY } from '../paths.ts';
import type { Tables } from './tables.ts';

/**
 * Uses its own connection, because a migration may take longer than the
 * time limit of other statements.
 */
export async function migrateTables(
  connection: ClientConfig,
  onError: (error: Error) => void,
): Promise<void> {
  const pool = new Pool({
    ...connection,
    max: 1,
    application_name: 'howdah control plane, migrations',
  });
  pool.on('error', onError);
  pool.on('connect', (client) => client.on('error', onError));
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
  const migrator = new Migrator({ db, provider: { getMigrations: readMigrations } });
  const { error, results } = await migrator.migrateToLatest();
  await db.destroy();
  const failed = results?.find(({ status }) => status === 'Error')?.migrationName ?? null;
  if (error !== undefined) throw new Error(whyNotMigrated(error, failed), { cause: error });
}

/**
 * Explains why this version cannot use the metadata database.
 *
 * @param failed the migration that failed; null: none did
 */
export function whyNotMigrated(error: unknown, failed: string | null): string {
  const reason = error instanceof Error ? error.message : String(error);
  const unknown = /previously executed migration (\S+) is missing/.exec(reason)?.[1];
  if (unknown !== undefined)
    return `the metadata database belongs to a newer version of Howdah: it has the migration ${unknown}, which this version does not know. Start that version or a newer one, or restore a backup of the metadata database that this version made (howdah restore-control)`;
  const which =
    failed === null
      ? 'the migrations of the metadata database could not be run'
      : `migration ${failed} of the metadata database failed`;
  return `${which}: ${reason}. Nothing was changed: remove the cause and run howdah up again, or go on with the version before meanwhile`;
}

async function readMigrations() {
  const names = (await readdir(MIGRATIONS_DIRECTORY))
    .filter((name) => name.endsWith('.sql'))
    .toSorted();
  const loaded = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(MIGRATIONS_DIRECTORY, name), 'utf8');
      return [
        name.replace(/\.sql$/, ''),
        { up: async (db: Kysely<unknown>) => void (await sql.raw(text).execute(db)) },
      ] as const;
    }),
  );
  return Object.fromEntries(loaded);
}
