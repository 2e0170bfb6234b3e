/** Promises of engines with PostgreSQL about statements that users send, which only read. */
import assert from 'node:assert/strict';
import { StatementRefused } from '../engine.ts';
import { can, runStatement, until, withService, type Promised, type Subject } from './subject.ts';

export const STATEMENT_PROMISES: readonly Promised[] = [
  {
    name: 'a statement reads what was committed, and cannot write',
    applies: can('query'),
    check: statementsRead,
  },
  {
    name: 'a statement that runs too long is ended, whatever it does',
    applies: can('query'),
    check: statementsEnd,
  },
];

async function refusal(asked: Promise<unknown>): Promise<string> {
  const error = await asked.then(
    () => assert.fail('it was not refused'),
    (thrown: unknown) => thrown,
  );
  if (error instanceof StatementRefused) return error.sqlstate;
  throw error;
}

/** Each would write, in a way that one of the two guards refuses. */
const WRITES = [
  'insert into suite values (1)',
  'create table other (number integer)',
  "select pg_logical_emit_message(false, 'prefix', 'message')",
  'select pg_export_snapshot()',
  "select pg_notify('channel', 'message'), lo_create(0)",
  "copy suite to program 'true'",
];

function statementsRead(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await subject.insertRows(spec, 3);
    const { columns, rows, truncated } = await runStatement(
      subject,
      spec,
      'select number, $1::text as word from suite order by number',
      { parameters: ['more'], maxRows: 2 },
    );
    assert.deepEqual(
      columns.map(({ type }) => type),
      ['integer', 'text'],
    );
    assert.deepEqual(
      { rows, truncated },
      {
        rows: [
          ['1', 'more'],
          ['2', 'more'],
        ],
        truncated: true,
      },
    );
    for (const sql of WRITES)
      assert.match(await refusal(runStatement(subject, spec, sql)), /^(25006|42501|0A000)$/, sql);
    assert.equal(await subject.countRows(spec), 3);
  });
}

/**
 * The statement catches its end, and hides that nobody waits for it any more. The exception would
 * also undo a setting that is made in the inner block.
 */
export const STUBBORN = `do $$ begin
  perform set_config('client_connection_check_interval', '0', false);
  begin perform pg_sleep(60);
  exception when query_canceled then perform pg_sleep(600);
  end;
end $$`;
const OTHERS = `select pid from pg_stat_activity
  where usename = current_user and pid <> pg_backend_pid()`;

function statementsEnd(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    for (const sql of ['select pg_sleep(60)', STUBBORN])
      assert.equal(
        await refusal(runStatement(subject, spec, sql, { timeoutMs: 300 })),
        '57014',
        sql,
      );
    await until(subject, 'its session ends', async () => {
      return (await runStatement(subject, spec, OTHERS)).row_count === 0;
    });
  });
}
