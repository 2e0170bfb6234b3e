/** Names of the services of a project. */
import { sql } from 'kysely';
import { isListed } from './predicates.ts';
import type { Tx } from './tables.ts';

/**
 * The services of a project that have one of these names. Until the transaction ends, others that
 * ask wait.
 */
export async function lockServicesNamed(
  tx: Tx,
  projectId: string,
  names: readonly string[],
): Promise<readonly { id: string; name: string }[]> {
  const lock = sql`pg_advisory_xact_lock(hashtext('howdah service names'), hashtext(${projectId}))`;
  await sql`select ${lock}`.execute(tx);
  return tx
    .selectFrom('services')
    .select(['id', 'name'])
    .where('project_id', '=', projectId)
    .where(isListed)
    .where('name', 'in', names)
    .orderBy('id')
    .execute();
}
