/** The SQL of restore certificates, and of the keys that sign them. */
import type { CertificateKey } from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import type { Db, Tables, Tx } from './tables.ts';

/** Kept of each service: a year of daily verifications, and some that users asked for. */
export const KEPT_CERTIFICATES = 400;
const PRUNE_BATCH = 1000;

export type CertificateKeyRow = Selectable<Tables['certificate_keys']>;

/** Locks the keys against another that is made, and reads them, the newest first. */
export async function lockCertificateKeys(tx: Tx): Promise<CertificateKeyRow[]> {
  await sql`select pg_advisory_xact_lock(hashtext('howdah certificate keys'))`.execute(tx);
  return tx
    .selectFrom('certificate_keys')
    .selectAll()
    .orderBy('created', 'desc')
    .orderBy('id')
    .execute();
}

export async function insertCertificateKey(
  tx: Tx,
  key: Pick<CertificateKeyRow, 'id' | 'public_key' | 'sealed'>,
): Promise<void> {
  await tx.insertInto('certificate_keys').values(key).execute();
}

/** The public keys, the newest first. */
export async function listCertificateKeys(db: Db): Promise<CertificateKey[]> {
  const rows = await db
    .selectFrom('certificate_keys')
    .select(['id', 'public_key', 'created'])
    .orderBy('created', 'desc')
    .orderBy('id')
    .execute();
  return rows.map(({ id, public_key, created }) => ({
    key_id: id,
    public_key,
    created: created.toISOString(),
  }));
}

/** Stores a certificate of a service that is locked, and removes those beyond the cap. */
export async function insertCertificate(
  tx: Tx,
  certificate: { id: string; service_id: string; issued: string; document: string },
): Promise<void> {
  await tx.insertInto('certificates').values(certificate).execute();
  await sql`
    delete from certificates where id in (
      select id from certificates where service_id = ${certificate.service_id}
      order by issued desc, id offset ${KEPT_CERTIFICATES}::integer)`.execute(tx);
}

/** The signed documents of a service, the newest first. */
export async function listCertificateTexts(db: Db, serviceId: string): Promise<string[]> {
  const rows = await db
    .selectFrom('certificates')
    .select('document')
    .where('service_id', '=', serviceId)
    .orderBy('issued', 'desc')
    .orderBy('id')
    .execute();
  return rows.map(({ document }) => document);
}

/** A signed document of a service; null: it has none of this id. */
export async function findCertificateText(
  db: Db,
  serviceId: string,
  id: string,
): Promise<string | null> {
  const row = await db
    .selectFrom('certificates')
    .select('document')
    .where('service_id', '=', serviceId)
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.document ?? null;
}

/** Removes certificates that are older than this. @returns whether there may be more */
export async function pruneCertificates(db: Db, keptMs: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from certificates where id = any (array(
      select id from certificates where issued < now() - ${`${keptMs} ms`}::interval
      order by issued limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}
