/** Records what an operation does not carry over, for its dry run and for later readers. */
import { notCarriedBy, type Carried, type Leaving } from '../domain/service/not-carried.ts';
import { EngineUnavailable, StatementRefused } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import { recordNotCarried } from '../store/operations.ts';
import type { Tx } from '../store/tables.ts';

export async function keepNotCarried(
  tx: Tx,
  operationId: string,
  leaving: Leaving,
  service: Carried | null,
): Promise<void> {
  const lines = notCarriedBy(leaving, service);
  if (lines.length > 0) await recordNotCarried(tx, operationId, lines);
}

/**
 * Slots of standbys and nodes are made again by themselves. A tenant may have relations and
 * operators of these names in a schema that is searched before.
 */
const SLOTS_OF_USERS = `select slot_name from pg_catalog.pg_replication_slots
  where slot_name operator(pg_catalog.!~) '^(member_|node_|howdah_|_cnpg_)' order by slot_name`;
const MOST_SLOTS = 100;
const READ_WITHIN_MS = 2000;

/**
 * The replication slots that users of a service have made; none, if it does not answer now. A tenant
 * whose settings have the statement refused must not keep the operation from its service.
 */
export async function readSlots({ engine }: Region, id: string): Promise<string[]> {
  const statement = {
    sql: SLOTS_OF_USERS,
    parameters: [],
    maxRows: MOST_SLOTS,
    timeoutMs: READ_WITHIN_MS,
  };
  try {
    const { rows } = await engine.sql.query(id, null, statement);
    return rows.flatMap(([name]) => (typeof name === 'string' ? [name] : []));
  } catch (error) {
    if (error instanceof EngineUnavailable || error instanceof StatementRefused) return [];
    throw error;
  }
}
