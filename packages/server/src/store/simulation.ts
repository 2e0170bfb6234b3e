/** The state of a simulated region, as documents by key. */
import type { Db } from './tables.ts';

export async function readDocuments(db: Db, region: string): Promise<ReadonlyMap<string, unknown>> {
  const rows = await db
    .selectFrom('simulated_documents')
    .select(['key', 'document'])
    .where('region_code', '=', region)
    .execute();
  return new Map(rows.map(({ key, document }) => [key, document]));
}

export async function saveDocument(
  db: Db,
  region: string,
  key: string,
  value: unknown,
): Promise<void> {
  const document = JSON.stringify(value);
  await db
    .insertInto('simulated_documents')
    .values({ region_code: region, key, document })
    .onConflict((conflict) => conflict.columns(['region_code', 'key']).doUpdateSet({ document }))
    .execute();
}

export async function removeDocument(db: Db, region: string, key: string): Promise<void> {
  await db
    .deleteFrom('simulated_documents')
    .where('region_code', '=', region)
    .where('key', '=', key)
    .execute();
}
