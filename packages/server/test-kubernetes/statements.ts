/** Statements through the API: what keeps them from writing, and how many run at a time. */
import { describe, expect, test } from 'vitest';
import { makeOlder, withSubject } from './faults.ts';
import { readerSecret, removeAll, runStatement, settle, STUBBORN } from './probe.ts';
import { until } from '../test/until.ts';

/** An earlier release made no role, and left functions that write to all. */
const BEFORE_READER_ROLE = {
  secretOf: readerSecret,
  database: 'tsdb',
  sql:
    'drop owned by howdah_reader; drop role howdah_reader; ' +
    'grant execute on function pg_logical_emit_message(boolean, text, text, boolean) to public',
};

describe.concurrent('statements of users', () => {
  test('an older service gets the role by a step, and its statements are refused', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      await makeOlder(subject, spec, BEFORE_READER_ROLE);
      const known = { ...spec, provisioned: true };
      await until('the step is made', async () =>
        (await settle(subject, known)).steps.includes('write configuration'),
      );
      await expect(runStatement(subject, spec, 'select 1')).rejects.toMatchObject({
        sqlstate: '42501',
        message: expect.stringContaining('a session that only reads could write here'),
        hint: expect.stringContaining('pg_dump'),
      });
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }));

  test('statements are refused while a user has granted a role to theirs', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const asAdmin = (sql: string) => subject.withClient(spec, (client) => client.query(sql));
      await asAdmin('create role friend; grant friend to howdah_reader');
      await expect(runStatement(subject, spec, 'select 1')).rejects.toThrow(
        'revoke friend from howdah_reader',
      );
      await asAdmin('revoke friend from howdah_reader');
      for (const sql of ['drop role howdah_reader', "alter role howdah_reader password 'x'"])
        await expect(asAdmin(sql)).rejects.toThrow('permission denied');
      // Settings of the owner do not reach the session.
      await asAdmin(
        'alter database tsdb set default_transaction_read_only = off; ' +
          "alter database tsdb set role = 'friend'",
      );
      expect((await runStatement(subject, spec, 'select current_user')).rows).toEqual([
        ['howdah_reader'],
      ]);
      await expect(runStatement(subject, spec, 'create table t ()')).rejects.toThrow('read-only');
      await removeAll(subject, spec.id);
    }));

  test('ten statements run at a time, and are ended also when all of them ignore that', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const asked = Array.from({ length: 10 }, () =>
        runStatement(subject, spec, STUBBORN, { timeoutMs: 20_000 }).then(
          () => 'answered',
          (error: unknown) => String(error),
        ),
      );
      await until('all statements run', async () => {
        const { rowCount } = await subject.withClient(spec, (client) => client.query(RUNNING));
        return rowCount === 10;
      });
      await expect(runStatement(subject, spec, 'select 1')).rejects.toThrow(
        '10 statements run on it',
      );
      for (const result of await Promise.all(asked))
        expect(result).toContain('ended after its timeout of 20000 ms');
      await until('all statements have ended', async () => {
        const { rows } = await runStatement(subject, spec, SESSIONS);
        return rows[0]?.[0] === '1';
      });
      await removeAll(subject, spec.id);
    }));
});

const RUNNING = "select from pg_stat_activity where usename = 'howdah_reader' and state = 'active'";
const SESSIONS = 'select count(*) from pg_stat_activity where usename = current_user';
