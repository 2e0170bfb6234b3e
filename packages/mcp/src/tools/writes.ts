/** Tools that write, on forks that the key has made. */
import { Type } from 'typebox';
import { LOCKS_SQL, migrationSql, OBJECTS_SQL, objectsIn, TABLE_NAMES_SQL } from '../catalogs.ts';
import { findService, type Cloud } from '../cloud.ts';
import { blockingLocks, describeDiff, diffSchemas, type DatabaseObject } from '../diff.ts';
import { inOwnFork, type OwnSession } from '../own-forks.ts';
import { addTool, closed, type Outcome, type ToolServer } from '../tool.ts';
import { optionalName, statement } from './statements.ts';

const MAX_CATALOG_ROWS = 100_000;
const MIGRATION_MS = 60_000;

const ownFork = Type.String({
  minLength: 1,
  maxLength: 128,
  description:
    'name or service_id of a fork that this key has made with fork_service, or take_lease',
});
const database = optionalName('this database; default: tsdb');

export function addWriteTools(server: ToolServer, cloud: Cloud): void {
  addExecute(server, cloud);
  addApplyMigration(server, cloud);
}

function addExecute(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'execute',
    {
      title: 'Run one statement on a fork',
      description:
        'Runs one statement of any kind as tsdbadmin on a fork that this key has made, and ' +
        'commits it; refused for every other service. Cost: that of the statement. Use ' +
        'apply_migration for several statements. Values come as text or null. If this process ' +
        'does not know the password of the fork, it sets another one.',
      kind: 'write',
      input: Type.Object({ service: ownFork, ...statement, database }, closed),
    },
    async ({ service: wanted, sql, parameters = [], max_rows = 50, ...rest }, signal) => {
      const found = await findService(cloud, wanted);
      const { timeout_ms: timeoutMs = 10_000 } = rest;
      const limits = { database: rest.database, timeoutMs };
      const answer = await inOwnFork(cloud, found, limits, signal, async ({ run }) =>
        run(sql, parameters, max_rows),
      );
      const { command, row_count: rows, elapsed_ms: ms, truncated } = answer;
      return {
        summary:
          `${command}${rows === null ? '' : ` of ${rows} rows`} in ${ms} ms on ${found.name}` +
          `${truncated ? `; only the first ${max_rows} rows are here` : ''}.`,
        data: { service_id: found.service_id, ...answer },
      };
    },
  );
}

function addApplyMigration(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'apply_migration',
    {
      title: 'Try a migration on a fork',
      description:
        'Runs the statements of a migration in one transaction as tsdbadmin on a fork that this ' +
        'key has made, and commits it: all of it, or nothing. Reports how long it took, the ' +
        'tables that it locks until its end against reads or writes of others, and what it ' +
        'changed in the schema. Leave out BEGIN and COMMIT. Cost: that of the migration.',
      kind: 'write',
      input: Type.Object(
        {
          service: ownFork,
          sql: Type.String({ minLength: 1, description: 'the statements of the migration' }),
          database,
          timeout_ms: Type.Optional(
            Type.Integer({ minimum: 1, maximum: 600_000, default: MIGRATION_MS }),
          ),
        },
        closed,
      ),
    },
    async ({ service: wanted, sql, ...rest }, signal) => {
      const found = await findService(cloud, wanted);
      const { timeout_ms: timeoutMs = MIGRATION_MS } = rest;
      const limits = { database: rest.database, timeoutMs };
      const outcome = await inOwnFork(cloud, found, limits, signal, async (session) =>
        migrate(session, sql),
      );
      return { ...outcome, data: { service_id: found.service_id, ...outcome.data } };
    },
  );
}

/** Runs a migration, and commits it. @throws Problem; nothing of it is kept then */
async function migrate(session: OwnSession, sql: string): Promise<Outcome> {
  const { run } = session;
  await run('begin');
  const names = await run(TABLE_NAMES_SQL, [], MAX_CATALOG_ROWS);
  const before = await readObjects(session);
  // The search path of the catalogs must not be that of the migration.
  await run('rollback');
  await run('begin');
  const { elapsed_ms: elapsedMs } = await run(migrationSql(sql));
  const held = await run(LOCKS_SQL, [], MAX_CATALOG_ROWS);
  await run('savepoint howdah_catalogs');
  const after = await readObjects(session);
  await run('rollback to savepoint howdah_catalogs');
  const { elapsed_ms: commitMs } = await run('commit');
  const nameOf = new Map(names.rows.map(([oid, name]) => [oid, name ?? '']));
  const locks = blockingLocks(
    held.rows.flatMap(([oid, mode]) => {
      const table = nameOf.get(oid ?? '');
      return table === undefined ? [] : [{ table, mode: mode ?? '' }];
    }),
  );
  const schema = diffSchemas(before, after);
  const blocked = locks.map(({ table, blocks }) => `${blocks} of ${table}`).join(', ');
  return {
    summary:
      `The migration took ${elapsedMs} ms, its commit ${commitMs} ms. ` +
      `Others wait meanwhile with: ${blocked || 'nothing'}. Schema: ${describeDiff(schema)}.`,
    data: { elapsed_ms: elapsedMs, commit_ms: commitMs, locks, schema },
  };
}

/** Names and definitions are the same for each search path of the migration. */
async function readObjects({ run }: OwnSession): Promise<DatabaseObject[]> {
  await run("set local search_path = 'pg_catalog'");
  return objectsIn((await run(OBJECTS_SQL, [], MAX_CATALOG_ROWS)).rows).objects;
}
