/** Following a source until the cutover, and the cutover. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, escapeIdentifier } from 'pg';
import { readTables, shownOf, sqlOf } from './catalog.ts';
import {
  type Sessions,
  dropFollowing,
  readLag,
  readPosition,
  readProgress,
  tryLock,
  type Lsn,
} from './slot.ts';
import { compare, readContents, type Copied } from './copy.ts';
import { finishSchema } from './finish.ts';
import { Failure } from '../exit.ts';
import { duration, note, paintNote } from '../output.ts';
import { removeState, type State, slotOf } from './state.ts';
import { listed, shortMessageOf, only, sizeOf, step, type Report } from './steps.ts';
import { decode, lsnOf, numberOf, type Change, type Relation, type Value } from './decode.ts';

const IDLE_MS = 300;
/** How long a cutover waits for the process that follows. */
const TAKE_OVER_MS = 60_000;
/** How long a cutover waits for transactions of the source that write. */
const LOCK_MS = 30_000;
/** The cutover locks the source when no more than this is left to read. */
const SMALL_BYTES = 1_000_000;

/**
 * Applies all that the source has written up to now.
 *
 * @param isStoppable whether it ends before that when another command asks for it
 * @returns the number of rows
 */
async function catchUp(
  state: State,
  { source, target }: Sessions,
  isStoppable: boolean,
): Promise<number> {
  const upTo = await readPosition(source);
  let total = 0;
  for (;;) {
    const progress = await readProgress(target);
    if (progress === null)
      throw new Failure(`the import into ${state.service.name} has ended in another process`);
    if (progress.stop && isStoppable) return total;
    const batch = await applyBatch(state, { source, target }, progress.applied, upTo);
    total += batch.rows;
    if (batch.isAll) return total;
  }
}

/**
 * Follows the source until another command asks it to end, or the process ends.
 *
 * @throws Failure
 */
export async function followSource(state: State, sessions: Sessions): Promise<void> {
  const { name } = state.service;
  await sessions.target.query('update howdah_import.progress set stop = false');
  note(
    'The service has the rows of the source and follows it. Ctrl-C ends this command, not ' +
      `the import: howdah import resume ${name}. When the application can pause: howdah ` +
      `import cutover ${name}`,
  );
  await step('follow the source', async (report) => {
    let rows = 0;
    for (;;) {
      const progress = await readProgress(sessions.target);
      if (progress === null || progress.stop) return;
      rows += await catchUp(state, sessions, true);
      const { behindBytes } = await readLag(sessions.source, state);
      report(`${rows} rows applied, ${sizeOf(behindBytes)} behind`);
      await sleep(IDLE_MS);
    }
  });
  note('Another command has taken over the import.');
}

/** Makes this process the one that works on the import. @throws Failure conflict */
export async function takeOver(state: State, target: Client): Promise<void> {
  if ((await readProgress(target)) !== null)
    await target.query('update howdah_import.progress set stop = true');
  const deadline = performance.now() + TAKE_OVER_MS;
  while (!(await tryLock(target))) {
    if (performance.now() > deadline)
      throw new Failure(
        `another howdah import works on ${state.service.name}: end it with Ctrl-C, and try again`,
        'conflict',
      );
    await sleep(IDLE_MS);
  }
}

/** The end of a cutover, and how long the source accepted no writes. */
type Cutover = { downtimeMs: number; compared: boolean };

/**
 * Applies the last changes, makes the rest of the schema, and ends the import. Until its one
 * transaction is committed, nothing has changed: the import can be followed again.
 *
 * @param isCompared whether all rows are compared while the source is locked
 * @throws Failure
 */
export async function cutOver(
  state: State,
  sessions: Sessions,
  lock: Client,
  isCompared: boolean,
): Promise<Cutover> {
  const { source } = sessions;
  await step('catch up', async (report) => {
    for (;;) {
      await catchUp(state, sessions, false);
      const { behindBytes } = await readLag(source, state);
      report(`${sizeOf(behindBytes)} behind`);
      if (behindBytes < SMALL_BYTES) return;
    }
  });
  await step('lock the source against writes', () => lockTables(state, lock));
  const begunMs = performance.now();
  await step('apply the last changes', async (report) => {
    await flushed(source);
    report(`${await catchUp(state, sessions, false)} rows`);
  });
  if (isCompared)
    await step('compare with the source', (report) => compareNow(state, sessions, report));
  await step('finish the schema', async (report) => {
    report(await finishSchema(state, sessions));
  });
  const downtimeMs = performance.now() - begunMs;
  await warnOfWaiting(lock, source);
  await lock.query('rollback');
  return { downtimeMs, compared: isCompared };
}

async function lockTables(state: State, lock: Client): Promise<void> {
  await lock.query('begin');
  await lock.query(`set local lock_timeout = ${LOCK_MS}`);
  const tables = state.copied.map(sqlOf);
  try {
    if (tables.length > 0)
      await lock.query(`lock table only ${tables.join(', only ')} in exclusive mode`);
  } catch (error) {
    throw new Failure(
      'the tables of the source could not be locked; end what writes to them, and try ' +
        `again: ${shortMessageOf(error)}`,
      'conflict',
    );
  }
  const added = (await readTables(lock, [])).filter((table) => !tables.includes(sqlOf(table)));
  if (added.length > 0)
    throw new Failure(
      'the source has tables that are not followed, since they are newer than the import: ' +
        `${listed(added.map(shownOf))}; drop them, or cancel the import and begin again`,
      'conflict',
    );
}

/** Waits until commits that do not wait for the disk are in the WAL that decoding reads. */
async function flushed(source: Client): Promise<void> {
  const { rows } = await source.query<{ lsn: string }>(
    'select pg_catalog.pg_current_wal_insert_lsn()::text as lsn',
  );
  const { lsn } = only(rows, 'the position of the WAL');
  for (;;) {
    const found = await source.query<{ done: boolean }>(
      'select pg_catalog.pg_current_wal_flush_lsn() >= $1::pg_lsn as done',
      [lsn],
    );
    if (only(found.rows, 'the position of the WAL').done) return;
    await sleep(50);
  }
}

async function compareNow(
  state: State,
  { source, target }: Sessions,
  report: Report,
): Promise<void> {
  const now: Copied[] = [];
  for (const table of state.copied) {
    const contents = await readContents(source, table, table.columns);
    now.push({ ...table, contents });
    report(`${now.length} of ${state.copied.length} tables of the source`);
  }
  const different = await compare(target, now, report);
  if (different.length > 0)
    throw new Failure(`tables differ from the source: ${listed(different)}`);
}

/** Sessions of the source that wait for the lock would write there after the cutover. */
async function warnOfWaiting(lock: Client, source: Client): Promise<void> {
  const { rows: own } = await lock.query<{ pid: number }>(
    'select pg_catalog.pg_backend_pid() as pid',
  );
  const { rows } = await source.query<{ name: string }>(
    `select distinct coalesce(nullif(application_name, ''), 'without a name') as name
     from pg_catalog.pg_stat_activity where $1 = any (pg_catalog.pg_blocking_pids(pid)) order by 1`,
    [only(own, 'the session').pid],
  );
  if (rows.length > 0)
    note(
      `${paintNote.yellow('warning')} these clients still write to the source, where their ` +
        `writes are lost for the service: ${listed(rows.map(({ name }) => name))}`,
    );
}

/** Removes what following needs, and the state. Can be repeated. */
export async function endFollowing(state: State, sessions: Sessions): Promise<void> {
  await step('drop the replication slot and the publication', () => dropFollowing(state, sessions));
  await removeState(state);
}

/** The downtime for people. */
export const downtimeOf = ({ downtimeMs, compared }: Cutover): string =>
  'The source accepted no writes for ' +
  `${duration(downtimeMs)}${compared ? ', in which all rows were compared' : ''}.`;

// Applies decoded changes to the service, each transaction of the source exactly once.

/** The changes that are read at a time; a transaction of the source is never divided. */
const BATCH_CHANGES = 10_000;
const FETCH_ROWS = 1000;
const INSERT_ROWS = 200;
const MAX_PARAMETERS = 60_000;

/** A run of inserts into one table. */
type Inserts = { relation: Relation; rows: Value[][] };

/**
 * Applies what the source committed up to a position, or a part of it, in one transaction.
 *
 * @param applied the position up to which everything is applied
 * @returns whether nothing was left to apply, and the number of rows
 * @throws Failure when the service does not have a row that the source changed
 */
async function applyBatch(
  state: State,
  { source, target }: Sessions,
  applied: Lsn,
  upTo: Lsn,
): Promise<{ isAll: boolean; rows: number }> {
  const applier = createApplier(target, numberOf(applied));
  await source.query('begin');
  try {
    await source.query(
      `declare changes no scroll cursor for
       select data from pg_catalog.pg_logical_slot_peek_binary_changes($1, $2, $3,
         'proto_version', '1', 'publication_names', $4)`,
      [slotOf(state), upTo, BATCH_CHANGES, `"${slotOf(state)}"`],
    );
    await target.query('begin');
    for (;;) {
      const { rows } = await source.query<{ data: Buffer }>(`fetch ${FETCH_ROWS} from changes`);
      if (rows.length === 0) break;
      for (const { data } of rows) await applier.apply(decode(data));
    }
    await source.query('commit');
    const { end, rows } = await applier.finish();
    await target.query('commit');
    // Nothing is left before the position, unless the batch was full.
    const reached = end === null ? upTo : lsnOf(end);
    await source.query('select pg_catalog.pg_replication_slot_advance($1, $2)', [
      slotOf(state),
      reached,
    ]);
    return { isAll: end === null, rows };
  } catch (error) {
    await Promise.allSettled([source.query('rollback'), target.query('rollback')]);
    throw error instanceof Failure
      ? error
      : new Failure(`following the source: ${shortMessageOf(error)}`);
  }
}

function createApplier(target: Client, applied: bigint) {
  const relations = new Map<number, Relation>();
  const always = new Map<number, Set<string>>();
  let inserts: Inserts | null = null;
  let [isSkipped, end, count] = [false, null as bigint | null, 0];

  const relationOf = (id: number): Relation => {
    const found = relations.get(id);
    if (found === undefined) throw new Failure('the source sent a row of an unknown table');
    return found;
  };

  const flush = async (): Promise<void> => {
    if (inserts !== null) await insertRows(target, inserts);
    inserts = null;
  };

  const alwaysOf = async (relation: Relation): Promise<Set<string>> => {
    const known = always.get(relation.id) ?? (await readAlways(target, relation));
    always.set(relation.id, known);
    return known;
  };

  const add = async (relation: Relation, row: Value[]): Promise<void> => {
    const isOther = inserts !== null && inserts.relation !== relation;
    const isFull =
      inserts !== null &&
      (inserts.rows.length >= INSERT_ROWS ||
        inserts.rows.length * relation.columns.length > MAX_PARAMETERS);
    if (isOther || isFull) await flush();
    inserts ??= { relation, rows: [] };
    inserts.rows.push(row);
  };

  const applyRow = async (change: Change): Promise<void> => {
    count++;
    if (change.kind === 'insert') return add(relationOf(change.relation), change.row);
    await flush();
    if (change.kind === 'update') {
      const relation = relationOf(change.relation);
      await updateRow(target, relation, change, await alwaysOf(relation));
    } else if (change.kind === 'delete')
      await deleteRow(target, relationOf(change.relation), change.old);
    else if (change.kind === 'truncate')
      await truncate(target, change.relations.map(relationOf), change);
  };

  const apply = async (change: Change): Promise<void> => {
    switch (change.kind) {
      case 'begin':
        // The source sends it again when the position was not yet moved there.
        isSkipped = change.commitLsn < applied;
        return;
      case 'commit':
        end = change.endLsn;
        return;
      case 'relation':
        await flush();
        relations.set(change.relation.id, change.relation);
        return;
      case 'other':
        return;
      case 'insert':
      case 'update':
      case 'delete':
      case 'truncate':
        if (!isSkipped) await applyRow(change);
    }
  };

  /** Writes the position beside the changes, in their transaction. */
  const finish = async (): Promise<{ end: bigint | null; rows: number }> => {
    await flush();
    if (end !== null && end > applied)
      await target.query('update howdah_import.progress set applied = $1', [lsnOf(end)]);
    return { end, rows: count };
  };

  return { apply, finish };
}

/** The columns whose values only the server sets: always, as an identity. */
async function readAlways(target: Client, relation: Relation): Promise<Set<string>> {
  const { rows } = await target.query<{ name: string }>(
    `select attname as name from pg_catalog.pg_attribute
     where attrelid = $1::text::regclass and attidentity = 'a' and not attisdropped`,
    [sqlOf(relation)],
  );
  return new Set(rows.map(({ name }) => name));
}

async function insertRows(target: Client, { relation, rows }: Inserts): Promise<void> {
  const columns = relation.columns.map(({ name }) => escapeIdentifier(name)).join(', ');
  if (columns === '') {
    for (const _ of rows) await target.query(`insert into ${sqlOf(relation)} default values`);
    return;
  }
  const width = relation.columns.length;
  const tuples = rows.map(
    (_, row) => `(${relation.columns.map((_column, at) => `$${row * width + at + 1}`).join(', ')})`,
  );
  await target.query(
    `insert into ${sqlOf(relation)} (${columns}) overriding system value values ` +
      tuples.join(', '),
    rows.flat().map((value) => value ?? null),
  );
}

/** The condition that finds one row, by its replica identity. */
function conditionOf(relation: Relation, old: Value[], parameters: Value[]): string {
  const parts = relation.columns.flatMap(({ name, isKey }, at) => {
    if (!isKey) return [];
    parameters.push(old[at]);
    const column = escapeIdentifier(name);
    // Not every type has an operator =, but every value has a text.
    return relation.isFull
      ? [`${column}::text is not distinct from $${parameters.length}`]
      : [`${column} = $${parameters.length}`];
  });
  const condition = parts.join(' and ');
  return relation.isFull
    ? `ctid = (select ctid from only ${sqlOf(relation)} where ${condition} limit 1)`
    : condition;
}

async function updateRow(
  target: Client,
  relation: Relation,
  { old, row }: Extract<Change, { kind: 'update' }>,
  always: ReadonlySet<string>,
): Promise<void> {
  const parameters: Value[] = [];
  const sets = relation.columns.flatMap(({ name }, at) => {
    const value = row[at];
    if (value === undefined || always.has(name)) return [];
    parameters.push(value);
    return [`${escapeIdentifier(name)} = $${parameters.length}`];
  });
  if (sets.length === 0) return;
  const condition = conditionOf(relation, old ?? row, parameters);
  await changeOne(
    target,
    relation,
    `update only ${sqlOf(relation)} set ${sets.join(', ')} where ${condition}`,
    parameters,
  );
}

async function deleteRow(target: Client, relation: Relation, old: Value[]): Promise<void> {
  const parameters: Value[] = [];
  const condition = conditionOf(relation, old, parameters);
  await changeOne(
    target,
    relation,
    `delete from only ${sqlOf(relation)} where ${condition}`,
    parameters,
  );
}

async function changeOne(
  target: Client,
  relation: Relation,
  text: string,
  values: Value[],
): Promise<void> {
  const { rowCount } = await target.query(text, values);
  if (rowCount !== 1)
    throw new Failure(
      `${relation.schema}.${relation.name}: the source changed a row that the service does ` +
        'not have: somebody wrote to the service',
    );
}

async function truncate(
  target: Client,
  relations: readonly Relation[],
  { cascade, restart }: Extract<Change, { kind: 'truncate' }>,
): Promise<void> {
  const names = relations.map((relation) => `only ${sqlOf(relation)}`).join(', ');
  await target.query(
    `truncate ${names}${restart ? ' restart identity' : ''}${cascade ? ' cascade' : ''}`,
  );
}
