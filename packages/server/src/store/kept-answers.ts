/**
 * The answers to calls with an Idempotency-Key: written in the transaction of the change, kept for
 * a day.
 */
import { sql } from 'kysely';
import type { Db, Tx } from './tables.ts';

/** A call with an Idempotency-Key, as it is in the metadata database. */
export type CallName = { publicKey: string; lookup: Buffer; request: Buffer };
export type KeptAnswer = { request: Buffer; sealed: Buffer };

/** The time for which an answer is kept. */
const KEPT = sql`interval '24 hours'`;
const PRUNE_BATCH = 1000;

/** The answer to this Idempotency-Key; null: there is none, or it is too old. */
export async function findAnswer(
  db: Db,
  { publicKey, lookup }: Pick<CallName, 'publicKey' | 'lookup'>,
): Promise<KeptAnswer | null> {
  const row = await db
    .selectFrom('kept_answers')
    .select(['request', 'sealed'])
    .where('public_key', '=', publicKey)
    .where('lookup', '=', lookup)
    .where('created', '>', sql<Date>`now() - ${KEPT}`)
    .executeTakeFirst();
  return row ?? null;
}

/**
 * Claims an Idempotency-Key for a call that is about to be made; other calls with the key wait here
 * until the transaction ends.
 *
 * @returns the answer, if such a call has been made meanwhile; null: make the call
 */
export async function claimAnswer(
  tx: Tx,
  { publicKey, lookup, request }: CallName,
): Promise<KeptAnswer | null> {
  await sql`
    delete from kept_answers where public_key = ${publicKey} and lookup = ${lookup}
      and created < now() - ${KEPT}`.execute(tx);
  const claimed = await tx
    .insertInto('kept_answers')
    .values({ public_key: publicKey, lookup, request, sealed: Buffer.alloc(0) })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst();
  return claimed.numInsertedOrUpdatedRows === 1n ? null : findAnswer(tx, { publicKey, lookup });
}

export async function keepAnswer(
  db: Db,
  { publicKey, lookup }: CallName,
  sealed: Buffer,
): Promise<void> {
  await db
    .updateTable('kept_answers')
    .set({ sealed })
    .where('public_key', '=', publicKey)
    .where('lookup', '=', lookup)
    .execute();
}

/** Removes answers that are too old. @returns whether there may be more */
export async function pruneAnswers(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from kept_answers where ctid = any (array(
      select ctid from kept_answers where created < now() - ${KEPT} order by created
        limit ${sql.lit(PRUNE_BATCH)} for update skip locked))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}
