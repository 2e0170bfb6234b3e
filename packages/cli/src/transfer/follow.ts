/** Following a source until the cutover, and the cutover. */
import type { Client } from 'pg';
import { setTimeout as sleep } from 'node:timers/promises';
import { applyBatch } from './apply.ts';
import { readTables, shownOf, sqlOf } from './catalog.ts';
import type { Sessions } from './slot.ts';
import { compare, readContents, type Copied } from './copy.ts';
import { finishSchema } from './finish.ts';
import { Failure } from '../exit.ts';
import { duration, note, paintNote } from '../output.ts';
import { dropFollowing, readLag, readPosition, readProgress, tryLock } from './slot.ts';
import { removeState, type State } from './state.ts';
import { listed, messageOf, only, sizeOf, step, type Report } from './steps.ts';

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
export type Cutover = { downtimeMs: number; compared: boolean };

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
        `again: ${messageOf(error)}`,
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
