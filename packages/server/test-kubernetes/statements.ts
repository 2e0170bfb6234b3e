/** Statements through the API: what keeps them from writing, and how many run at a time. */
import { describe, expect, test } from 'vitest';
import { STUBBORN } from '../src/engine/conformance/statement-promises.ts';
import { removeAll, settle, until } from '../src/engine/conformance/subject.ts';
import type { ReadStatement } from '../src/engine/engine.ts';
import { DESIRED } from '../src/engine/kubernetes/manifests/cluster.ts';
import { namespaceOf, podOf, readerSecret } from '../src/engine/kubernetes/manifests/names.ts';
import type { ServiceSpec } from '../src/engine/spec.ts';
import { operator, rig } from './cloud.ts';
import { pathOf, SUPERUSER, withSubject } from './faults.ts';
import { pathIn } from './operator/cluster.ts';
import type { KubernetesSubject } from './subject.ts';

const run = (
  { engine }: KubernetesSubject,
  { id }: ServiceSpec,
  sql: string,
  change: Partial<ReadStatement> = {},
) => engine.sql.query(id, null, { sql, parameters: [], maxRows: 10, timeoutMs: 20_000, ...change });

/** Makes a service as an earlier release did: without the role, and with functions that write. */
async function makeOlder(subject: KubernetesSubject, spec: ServiceSpec): Promise<void> {
  const { api } = operator();
  const namespace = namespaceOf(subject.projectId);
  await api.merge(pathOf(subject, spec), {
    metadata: { annotations: { [DESIRED]: null } },
    spec: { managed: { roles: null } },
  });
  await api.merge(`${pathOf(subject, spec)}/status`, { status: { managedRolesStatus: null } });
  await api.remove(pathIn(namespace, 'secrets', readerSecret(spec.id)));
  const sql =
    'drop owned by howdah_reader; drop role howdah_reader; ' +
    'grant execute on function pg_logical_emit_message(boolean, text, text, boolean) to public';
  const pod = { metadata: { namespace, name: podOf(spec.id, 0) } };
  await rig().exec(pod, `${SUPERUSER} --dbname=tsdb --command='${sql}'`);
}

describe.concurrent('statements of users', () => {
  test('an older service gets the role by a step, and its statements are refused', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      await makeOlder(subject, spec);
      const known = { ...spec, provisioned: true };
      await until(subject, 'the step', async () =>
        (await settle(subject, known)).steps.includes('write configuration'),
      );
      await expect(run(subject, spec, 'select 1')).rejects.toMatchObject({
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
      await expect(run(subject, spec, 'select 1')).rejects.toThrow(
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
      expect((await run(subject, spec, 'select current_user')).rows).toEqual([['howdah_reader']]);
      await expect(run(subject, spec, 'create table t ()')).rejects.toThrow('read-only');
      await removeAll(subject, spec.id);
    }));

  test('ten statements run at a time, and are ended also when all of them ignore that', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const asked = Array.from({ length: 10 }, () =>
        run(subject, spec, STUBBORN, { timeoutMs: 20_000 }).then(
          () => 'answered',
          (error: unknown) => String(error),
        ),
      );
      await until(subject, 'all run', async () => {
        const { rowCount } = await subject.withClient(spec, (client) => client.query(RUNNING));
        return rowCount === 10;
      });
      await expect(run(subject, spec, 'select 1')).rejects.toThrow('10 statements run on it');
      for (const result of await Promise.all(asked))
        expect(result).toContain('ended after its timeout of 20000 ms');
      await until(subject, 'all have ended', async () => {
        const { rows } = await run(subject, spec, SESSIONS);
        return rows[0]?.[0] === '1';
      });
      await removeAll(subject, spec.id);
    }));
});

const RUNNING = "select from pg_stat_activity where usename = 'howdah_reader' and state = 'active'";
const SESSIONS = 'select count(*) from pg_stat_activity where usename = current_user';
