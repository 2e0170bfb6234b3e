/** Records what an operation does not carry over, for its dry run and for later readers. */
import {
  notCarriedBy,
  type Carried,
  type Leaving,
  slotFates,
  type SlotFates,
  type SlotOfUsers,
} from '../domain/service/not-carried.ts';
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
 * Slots of standbys and nodes are made again by themselves. A tenant may have relations, functions
 * and operators of these names in a schema that is searched before.
 */
const SLOTS_OF_USERS = `select slot_name,
    pg_catalog.to_jsonb(s) operator(pg_catalog.->>) 'failover'
  from pg_catalog.pg_replication_slots s
  where slot_name operator(pg_catalog.!~) '^(member_|node_|howdah_|_cnpg_)' order by slot_name`;
const MOST_SLOTS = 100;
const READ_WITHIN_MS = 2000;

/**
 * The replication slots that users of a service have made; none, if it does not answer now. A
 * tenant whose settings have the statement refused must not keep the operation from its service.
 */
async function readSlots({ engine }: Region, id: string): Promise<SlotOfUsers[]> {
  const statement = {
    sql: SLOTS_OF_USERS,
    parameters: [],
    maxRows: MOST_SLOTS,
    timeoutMs: READ_WITHIN_MS,
  };
  try {
    const { rows } = await engine.sql.query(id, null, statement);
    return rows.flatMap(([name, failover]) =>
      typeof name === 'string'
        ? [{ name, hasFailover: typeof failover === 'string' ? failover === 'true' : null }]
        : [],
    );
  } catch (error) {
    if (error instanceof EngineUnavailable || error instanceof StatementRefused) return [];
    throw error;
  }
}

/** The names of the slots that users of a service have made. */
export async function readSlotNames(region: Region, id: string): Promise<string[]> {
  return (await readSlots(region, id)).map(({ name }) => name);
}

/** The fates of the slots of a service whose primary changes. */
export async function readSlotFates(region: Region, id: string): Promise<SlotFates> {
  const slots = await readSlots(region, id);
  return slotFates(slots, slots.length === 0 ? null : await readSynchronised(region, id));
}

async function readSynchronised({ engine }: Region, id: string): Promise<string[] | null> {
  try {
    return await engine.observe.synchronisedSlots(id);
  } catch (error) {
    if (error instanceof EngineUnavailable) return [];
    throw error;
  }
}
