/** Makes what comes after the rows: indexes, keys, triggers, sequences, privileges. */
import { escapeIdentifier, type Client } from 'pg';
import {
  isAfterRows,
  isLate,
  isPrivilege,
  restore,
  restorePrivileges,
  scriptOf,
} from './archive.ts';
import { readIndexes, readMaterialized, sqlOf, type Hypertable } from './catalog.ts';
import { entriesOf, idOf, restoringOf } from './clone.ts';
import { compare, copySequences } from './copy.ts';
import { Failure } from '../exit.ts';
import { note, paintNote } from '../output.ts';
import { findProgram } from './programs.ts';
import { readProgress, type Sessions } from './slot.ts';
import type { State } from './state.ts';
import { listed, shortMessageOf, step } from './steps.ts';

/**
 * Makes everything that comes after the rows; of a followed import what does not act on changes.
 * Can be interrupted and repeated.
 *
 * @throws Failure when the rows differ from those of the snapshot
 */
export async function finishCopy(state: State, sessions: Sessions): Promise<void> {
  if ((await readProgress(sessions.target)) !== null) {
    await step('create indexes and keys', async (report) => {
      report(`${await createIndexes(state, sessions)} indexes`);
    });
    if (!state.follow)
      await step('finish the schema', async (report) => {
        report(await finishSchema(state, sessions));
      });
  }
  const program = await findProgram('pg_restore', state.major);
  const privileges = (await entriesOf(state, program)).filter(isPrivilege);
  const errors = await step('restore privileges', () =>
    restorePrivileges(privileges, restoringOf(state, program)),
  );
  if (errors > 0)
    note(
      `${paintNote.yellow('warning')} ${errors} privileges could not be granted: compare ` +
        '\\dp of both',
    );
  await step('analyze', async () => void (await sessions.target.query('analyze')));
  const different = await step('compare with the source', (report) =>
    compare(sessions.target, state.copied, report),
  );
  if (different.length > 0)
    throw new Failure(`tables differ from the source: ${listed(different)}`);
}

/** Creates the indexes and keys that are not there yet, several at a time. */
async function createIndexes(state: State, { source, target }: Sessions): Promise<number> {
  const program = await findProgram('pg_restore', state.major);
  const early = new Set(state.keys);
  const there = new Set((await readIndexes(target)).values());
  const names = await readIndexes(source);
  const chosen = (await entriesOf(state, program)).filter((entry) => {
    const name = names.get(idOf(entry));
    const isThere = name !== undefined && there.has(name);
    return isAfterRows(entry) && !isLate(entry) && !early.has(idOf(entry)) && !isThere;
  });
  await restore(chosen, { ...restoringOf(state, program), args: [`--jobs=${state.jobs}`] });
  return chosen.length;
}

/**
 * Makes the rest of the schema in one transaction. Its commit is the end of an import, and the
 * cutover of a followed one: before it, nothing of this is there.
 *
 * @returns how much that was, for people
 * @throws Failure
 */
export async function finishSchema(state: State, { source, target }: Sessions): Promise<string> {
  const program = await findProgram('pg_restore', state.major);
  const late = (await entriesOf(state, program)).filter(isLate);
  const script = await scriptOf(late, restoringOf(state, program));
  const views = await readMaterialized(source);
  await target.query('begin');
  try {
    const sequences = await copySequences(source, target);
    await target.query(script);
    // The script leaves settings of pg_restore.
    await target.query("set local search_path = ''; set local row_security = off");
    for (const table of state.hypertables) await addForeignKeys(target, table);
    for (const view of views) await target.query(`refresh materialized view ${sqlOf(view)}`);
    await target.query('drop schema howdah_import cascade');
    await target.query('commit');
    return (
      `${sequences} sequences; ${views.length} materialized views; ` +
      `${late.length} triggers, foreign keys, rules, policies and comments`
    );
  } catch (error) {
    await target.query('rollback').catch(() => undefined);
    throw new Failure(`finishing the schema of ${state.service.name}: ${shortMessageOf(error)}`);
  }
}

/** pg_dump writes them with ONLY, which hypertables refuse. */
async function addForeignKeys(target: Client, table: Hypertable): Promise<void> {
  for (const { name, definition } of table.foreignKeys) {
    const constraint = escapeIdentifier(name);
    await target.query(`alter table ${sqlOf(table)} add constraint ${constraint} ${definition}`);
  }
}
