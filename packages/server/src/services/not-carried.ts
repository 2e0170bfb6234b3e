/** Records what an operation does not carry over, for its dry run and for later readers. */
import { notCarriedBy, type Carried, type Leaving } from '../domain/service/not-carried.ts';
import { EngineUnavailable } from '../engine/engine.ts';
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

/** Those of standbys and nodes are made again by themselves. */
const SLOTS_OF_USERS = `select slot_name from pg_replication_slots
  where slot_name !~ '^(member_|node_|howdah_|_cnpg_)' order by slot_name`;
const MOST_SLOTS = 100;
const READ_WITHIN_MS = 2000;

/** The replication slots that users of a service have made; none, if it does not answer now. */
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
    if (error instanceof EngineUnavailable) return [];
    throw error;
  }
}
