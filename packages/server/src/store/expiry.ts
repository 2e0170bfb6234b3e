/** The SQL of services that are deleted at a set time. The clock is that of the database. */
import { sql } from 'kysely';
import type { ServiceRow } from '../domain/service/row.ts';
import { isIn, isListed } from './predicates.ts';
import type { Db, Tx } from './tables.ts';

const isOver = (column: 'expires_at' | 'expiry_warning_at') =>
  sql<boolean>`${sql.ref(column)} <= now()`;

/** The services of a region whose time is over, and that are not being deleted. */
export async function listExpired(db: Db, region: string): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where(isListed)
    .where(isOver('expires_at'))
    .where('deleting', '=', false)
    .orderBy('expires_at')
    .execute();
  return rows.map(({ id }) => id);
}

/** The services of a region whose end is to be announced. */
export async function listExpiring(db: Db, region: string): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where(isListed)
    .where('expires_at', 'is not', null)
    .where(isOver('expiry_warning_at'))
    .where('deleting', '=', false)
    .execute();
  return rows.map(({ id }) => id);
}

/** Writes the event that a locked service expires. */
export async function reportExpiring(tx: Tx, service: ServiceRow): Promise<void> {
  const { id, name, expires_at: at, purge_on_expiry, project_id: project } = service;
  if (at === null) return;
  const facts = { service_id: id, name, expires_at: at.toISOString(), purge_on_expiry };
  const doc = JSON.stringify(facts);
  await sql`select emit_event(${project}, 'service.expiring', ${doc}::json)`.execute(tx);
}

/** Orders the calls of a key that make services, until the transaction ends. */
export async function lockServicesMadeBy(tx: Tx, publicKey: string): Promise<void> {
  const key = sql`hashtext(${publicKey})`;
  await sql`select pg_advisory_xact_lock(hashtext('howdah services of a key'), ${key})`.execute(tx);
}

/** The number of services that a key made and that users see. */
export async function countServicesMadeBy(tx: Tx, publicKey: string): Promise<number> {
  const { count } = await tx
    .selectFrom('services')
    .select((select) => select.fn.countAll<string>().as('count'))
    .where('created_by', '=', publicKey)
    .where(isListed)
    .executeTakeFirstOrThrow();
  return Number(count);
}
