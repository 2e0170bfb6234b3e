/** Requests of programs for a key, which a person approves in the web console. */
import type { LoginRequest, Role } from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import type { Db, Tables, Tx } from './tables.ts';

export type LoginRow = Selectable<Tables['login_requests']>;

export type NewLogin = {
  codeHash: string;
  userCode: string;
  clientName: string;
  address: string;
  browser: { challenge: string; redirectUri: string } | null;
  lifetimeMs: number;
};

/** Requests that wait at one time, in the whole installation: nobody needs a key to make one. */
export const MAX_LOGINS = 1000;
const PRUNE_BATCH = 1000;

/** Stores a request. @returns false: too many wait already */
export async function insertLogin(
  db: Db,
  { codeHash, userCode, clientName, address, browser, lifetimeMs }: NewLogin,
): Promise<boolean> {
  const { numAffectedRows } = await sql`
    insert into login_requests
      (code_hash, user_code, client_name, address, code_challenge, redirect_uri, expires_at)
    select ${codeHash}, ${userCode}, ${clientName}, ${address}, ${browser?.challenge ?? null},
      ${browser?.redirectUri ?? null}, now() + ${lifetimeMs} * interval '1 ms'
    where (select count(*) from login_requests where expires_at > now()) < ${MAX_LOGINS}`.execute(
    db,
  );
  return numAffectedRows === 1n;
}

/** The request with a code that nobody has answered; null: there is none. */
export async function findWaitingLogin(db: Db, userCode: string): Promise<LoginRequest | null> {
  const row = await db
    .selectFrom('login_requests')
    .select(['user_code', 'client_name', 'address', 'created', 'expires_at'])
    .where('user_code', '=', userCode)
    .where('approved', 'is', null)
    .where('expires_at', '>', sql<Date>`now()`)
    .executeTakeFirst();
  return row === undefined
    ? null
    : { ...row, created: row.created.toISOString(), expires_at: row.expires_at.toISOString() };
}

/** The answer of a person; null: the request is denied. */
export type Approval = { role: Role; keyExpiresAt: Date | null } | null;

/** Records the answer to a request, once. @returns whether it waited for one */
export async function answerLogin(
  tx: Tx,
  userCode: string,
  publicKey: string,
  approval: Approval,
): Promise<boolean> {
  const { numUpdatedRows } = await tx
    .updateTable('login_requests')
    .set({
      approved: approval !== null,
      answered_by: publicKey,
      role: approval?.role ?? null,
      key_expires_at: approval?.keyExpiresAt ?? null,
    })
    .where('user_code', '=', userCode)
    .where('approved', 'is', null)
    .where('expires_at', '>', sql<Date>`now()`)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/**
 * The request of a program, which waits, or is removed with this answer. If two take it at once,
 * the second finds none.
 */
export async function takeLogin(
  tx: Tx,
  codeHash: string,
): Promise<{ waits: boolean; login: LoginRow | null }> {
  const login = await tx
    .deleteFrom('login_requests')
    .where('code_hash', '=', codeHash)
    .where('approved', 'is not', null)
    .where('expires_at', '>', sql<Date>`now()`)
    .returningAll()
    .executeTakeFirst();
  if (login !== undefined) return { waits: false, login };
  const waiting = await tx
    .selectFrom('login_requests')
    .select('code_hash')
    .where('code_hash', '=', codeHash)
    .where('approved', 'is', null)
    .where('expires_at', '>', sql<Date>`now()`)
    .executeTakeFirst();
  return { waits: waiting !== undefined, login: null };
}

/** Removes requests that have expired. @returns whether there may be more */
export async function pruneLogins(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from login_requests where code_hash = any (array(
      select code_hash from login_requests where expires_at <= now()
      order by expires_at limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}
