/**
 * The functions that make read-only roles, which no other region can enforce. A move takes them
 * from the owner of a service right before its last examination, and an abort gives them back.
 */
import type { Client } from 'pg';
import { EngineUnavailable } from '../engine.ts';
import { MAX_DATABASES } from '../moved-data.ts';
import { atPrimary } from './at-primary.ts';
import type { Local } from './local.ts';
import { isWithoutDatabase } from './postgres/databases.ts';
import { allowRoleFunctions } from './postgres/role-functions.ts';
import { withinTime, type Within } from '../time-limit.ts';

/** The time limit of all databases: a tenant can have each of them wait for a lock. */
const FUNCTIONS_WITHIN_MS = 60_000;

type Place = Pick<Local, 'machine'>;

/**
 * In all databases: a tenant can copy the one that has the functions.
 *
 * @throws EngineUnavailable when it was not possible in each of them, or took too long
 */
export async function allowFunctions(place: Place, id: string, isAllowed: boolean): Promise<void> {
  const within = withinTime(FUNCTIONS_WITHIN_MS, () => performance.now());
  const names = await atPrimary(place, id, readDatabases, { within });
  await inEach(names, within, (database) =>
    atPrimary(
      place,
      id,
      async (client) => void (await client.query(allowRoleFunctions(isAllowed))),
      { database, within },
    ),
  );
}

/**
 * Works in each database. A locked one keeps none of the others back.
 *
 * @throws EngineUnavailable the first problem, once all others are done or the time is over
 */
export async function inEach(
  databases: readonly string[],
  within: Within,
  work: (database: string) => Promise<void>,
): Promise<void> {
  let problem: EngineUnavailable | null = null;
  for (const database of databases) {
    within(1);
    try {
      await work(database);
    } catch (error) {
      if (!(error instanceof EngineUnavailable)) throw error;
      // Its owner has dropped it, or closed it.
      if (!isWithoutDatabase(error.cause)) problem ??= error;
    }
  }
  if (problem !== null) throw problem;
}

/** The first ones: a service with more does not move. */
async function readDatabases(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select datname::text as name from pg_database where datallowconn
     order by datname = 'tsdb' desc, datname limit ${MAX_DATABASES}`,
  );
  return rows.map(({ name }) => name);
}
