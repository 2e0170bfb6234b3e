/** One-time links and sessions of the web console. */
import { sql } from 'kysely';
import type { Pool } from 'pg';
import type { Db, Tx } from './tables.ts';
import { KEY_COLUMNS, type KeyRow } from './keys.ts';
import { coalesced } from './coalesced-reads.ts';

export type ConsoleToken = {
  hash: string;
  kind: 'link' | 'session';
  publicKey: string;
  lifetimeMs: number;
};

/**
 * Finds the key of a session, by the hash of its token. The key itself may have ended meanwhile.
 */
export function sessionReader(
  pool: Pool,
): (tokenHash: string) => Promise<(KeyRow & { public_key: string }) | null> {
  return coalesced<KeyRow & { public_key: string }>(
    pool,
    'console_sessions',
    `select t.token_hash as key, k.public_key, ${KEY_COLUMNS}
     from console_tokens t join api_keys k using (public_key) join projects p on p.id = k.project_id
     where t.kind = 'session' and t.expires_at > now() and t.token_hash = any($1)`,
  );
}

/** The most links and sessions of a key: the oldest are removed. */
export const MAX_TOKENS = 20;
const PRUNE_BATCH = 1000;

/** Stores a token. */
export async function insertToken(
  db: Db,
  { hash, kind, publicKey, lifetimeMs }: ConsoleToken,
): Promise<void> {
  await sql`
    delete from console_tokens where token_hash = any (array(
      select token_hash from console_tokens where public_key = ${publicKey} and kind = ${kind}
      order by expires_at desc offset ${sql.lit(MAX_TOKENS - 1)}))`.execute(db);
  const expires = sql<Date>`now() + ${lifetimeMs} * interval '1 ms'`;
  await db
    .insertInto('console_tokens')
    .values({ token_hash: hash, kind, public_key: publicKey, expires_at: expires })
    .execute();
}

/** Removes tokens that have expired. @returns whether there may be more */
export async function pruneTokens(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from console_tokens where token_hash = any (array(
      select token_hash from console_tokens where expires_at <= now() order by expires_at
        limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}

/** Removes a token. @returns its key; null: there is no such token, or it has expired */
export async function takeToken(
  db: Db | Tx,
  kind: ConsoleToken['kind'],
  hash: string,
): Promise<string | null> {
  const taken = await db
    .deleteFrom('console_tokens')
    .where('token_hash', '=', hash)
    .where('kind', '=', kind)
    .where('expires_at', '>', sql<Date>`now()`)
    .returning('public_key')
    .executeTakeFirst();
  return taken?.public_key ?? null;
}
