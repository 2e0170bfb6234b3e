/** Poolers: their modes, their role, and what becomes of them with their service. */
import type { Client } from 'pg';
import { Type } from 'typebox';
import { describe, expect, test } from 'vitest';
import type { ServiceSpec } from '../test/probe.ts';
import { operator } from './cloud.ts';
import { converge, paused, reasonOf, withSubject } from './faults.ts';
import { openLedger } from './ledger.ts';
import { pathIn } from './operator/cluster.ts';
import { namespaceOf, removeAll, replicated, settle } from './probe.ts';
import type { KubernetesSubject, Session } from './subject.ts';
import { until } from '../test/until.ts';

type Pooled = ServiceSpec & { readonly pooler: { port: number } };

async function pooled(subject: KubernetesSubject, spec: ServiceSpec): Promise<Pooled> {
  return { ...spec, pooler: { port: await subject.newPort() } };
}

/** The pooler as the endpoint of a client. */
const at = ({ endpoint: { host }, pooler: { port } }: Pooled) => ({ endpoint: { host, port } });

/** Networks that this machine is in none of. */
const OTHERS = ['192.0.2.0/24', '2001:db8::/32'];

const TRANSACTION: Session = { database: 'tsdb_transaction' };

async function pidOf(client: Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid ?? 0;
}

/** The servers that two sessions have which are open at the same time. */
const pidsOf = (subject: KubernetesSubject, spec: Pooled, session: Session = {}) =>
  subject.withClient(
    at(spec),
    async (one) => {
      const first = await pidOf(one);
      const second = await subject.withClient(at(spec), pidOf, undefined, session);
      return { first, second, again: await pidOf(one) };
    },
    undefined,
    session,
  );

const POD = Type.Object({ metadata: Type.Object({ name: Type.String() }) });
async function podsOf({ projectId }: KubernetesSubject, { id }: ServiceSpec): Promise<string[]> {
  const path = pathIn(namespaceOf(projectId), 'pods');
  const pods = await operator().api.list(`${path}?labelSelector=howdah.io/pooler=s-${id}`, POD);
  return pods.map(({ metadata: { name } }) => `${path}/${name}`);
}

const logsIn = (subject: KubernetesSubject, spec: Pooled, password?: string, session?: Session) =>
  subject.withClient(at(spec), async () => true, password, session).catch(() => false);

describe.concurrent('a pooler', () => {
  test('pools by session and by transaction, for roles and passwords of this moment', () =>
    withSubject(async (subject) => {
      const spec = await pooled(subject, await subject.newSpec());
      await settle(subject, spec);
      const sessions = await pidsOf(subject, spec);
      expect(sessions.second).not.toBe(sessions.first);
      const transactions = await pidsOf(subject, spec, TRANSACTION);
      expect(transactions.second).toBe(transactions.first);
      await subject.withClient(spec, (client) =>
        client.query("create role app login password 'password-of-app'"),
      );
      expect(await logsIn(subject, spec, 'password-of-app', { user: 'app' })).toBe(true);
      const password = 'another-password';
      const verifier = await subject.verifierOf(password);
      const change = { isPaused: false, keepSessions: true, sets: [] };
      await subject.engine.sql.setPassword(spec.id, verifier, change);
      expect(await logsIn(subject, spec, password, TRANSACTION)).toBe(true);
      expect(await logsIn(subject, spec)).toBe(false);
      expect(await logsIn(subject, spec, password, { ssl: false })).toBe(false);
      await removeAll(subject, spec.id);
    }));

  test('keeps its function from the users of the service', () =>
    withSubject(async (subject) => {
      const spec = await pooled(subject, await subject.newSpec());
      await settle(subject, spec);
      const refused = async (statement: string, message: string): Promise<void> =>
        expect(subject.withClient(spec, (client) => client.query(statement))).rejects.toThrow(
          message,
        );
      await refused("select pg_howdah.verifier('tsdbadmin')", 'permission denied for function');
      await refused('grant howdah_pooler to tsdbadmin', 'permission denied to grant role');
      await refused('set role howdah_pooler', 'permission denied to set role');
      await refused("alter role howdah_pooler password 'x'", 'permission denied to alter role');
      await refused('drop role howdah_pooler', 'permission denied to drop role');
      await refused('create schema pg_other', 'unacceptable schema name');
      await refused('drop schema pg_howdah cascade', 'must be owner of schema');
      // All that a user can set for the session of the pooler changes nothing of the answer.
      await subject.withClient(spec, async (client) => {
        await client.query('create schema evil');
        await client.query(
          'create function evil.now() returns timestamptz language sql ' +
            "as $$ select 'infinity'::timestamptz $$",
        );
        await client.query('alter database tsdb set search_path = evil, pg_catalog');
      });
      for (const path of await podsOf(subject, spec)) await operator().api.remove(path, 0);
      await until('another pod answers', () => logsIn(subject, spec));
      await removeAll(subject, spec.id);
    }));

  test('lets only clients of allowed networks in, and is the only way around them', () =>
    withSubject(async (subject) => {
      const allowed = { allowedNetworks: [subject.clientNetwork] };
      const spec = { ...(await pooled(subject, await subject.newSpec())), ...allowed };
      await settle(subject, { ...spec, pooler: null });
      expect((await settle(subject, spec)).steps).toEqual([
        'write configuration',
        'connect',
        'start connection pooler',
      ]);
      expect(await logsIn(subject, spec)).toBe(true);
      // The address of its pod is not allowed, and its sessions with the server go on.
      const idle = await subject.withClient(at(spec), async (client) => {
        const pid = await pidOf(client);
        await settle(subject, { ...spec, allowedNetworks: [...OTHERS, subject.clientNetwork] });
        return pid;
      });
      expect(idle).toBeGreaterThan(0);
      // The owner of the database refuses the session that asks for its function.
      await subject.withClient(spec, (client) =>
        client.query('revoke connect on database tsdb from public, howdah_reader'),
      );
      const others = { ...spec, allowedNetworks: OTHERS };
      const ended = subject.withClient(at(spec), async (client) => {
        expect((await settle(subject, others)).steps.at(-1)).toBe('reload connection pooler');
        await client.query('select 1');
      });
      await expect(ended).rejects.toThrow(/is not queryable|terminat/);
      for (const session of [{}, TRANSACTION])
        await expect(subject.withClient(at(spec), pidOf, undefined, session)).rejects.toThrow(
          'login rejected',
        );
      await expect(subject.withClient(spec, pidOf)).rejects.toThrow(
        'connection requires a valid client certificate',
      );
      const { steps } = await settle(subject, { ...others, pooler: null });
      expect(steps).toEqual(['stop connection pooler', 'write configuration', 'connect']);
      await expect(subject.withClient(spec, pidOf)).rejects.toThrow(/pg_hba.conf/);
      await settle(subject, { ...spec, pooler: null, allowedNetworks: null });
      await subject.withClient(spec, (client) =>
        client.query('grant connect on database tsdb to public, howdah_reader'),
      );
      await settle(subject, { ...spec, allowedNetworks: null });
      expect(await logsIn(subject, spec)).toBe(true);
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }));

  test('is stopped and started with its service, and is repaired', { tags: 'slow' }, () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const wanted = await pooled(subject, spec);
      expect((await settle(subject, wanted)).steps).toEqual(['start connection pooler']);
      const [pod = ''] = await podsOf(subject, wanted);
      await operator().api.remove(pod, 0);
      // Another one may answer before a login fails.
      await until('the pod is gone', async () => !(await podsOf(subject, wanted)).includes(pod));
      // The Deployment may not have noticed the end yet.
      await until('another pod answers', () => logsIn(subject, wanted));
      await settle(subject, wanted);
      await subject.recreate();
      expect((await settle(subject, wanted)).steps).not.toContain('start connection pooler');
      const { steps } = await settle(subject, paused(wanted));
      expect(steps).toEqual(['stop connection pooler', 'stop PostgreSQL']);
      await until('no pod is left', async () => (await podsOf(subject, wanted)).length === 0);
      expect((await settle(subject, wanted)).steps).toEqual([
        'start PostgreSQL',
        'connect',
        'start connection pooler',
      ]);
      expect(await logsIn(subject, wanted)).toBe(true);
      // Disabled while it is paused: the start removes it.
      await settle(subject, paused(wanted));
      await settle(subject, paused(spec));
      await settle(subject, spec);
      // The secret of its role stays.
      await until('the rest is gone', async () => {
        const left = await subject.leftovers(spec.id);
        return left.filter((name) => name.includes('-pooler')).length === 1;
      });
      await settle(subject, wanted);
      await removeAll(subject, spec.id);
      expect(await subject.leftovers(spec.id)).toEqual([]);
    }),
  );

  test('says which image cannot be pulled, and can be disabled', { tags: 'slow' }, () =>
    withSubject(
      async (subject) => {
        const spec = await subject.newSpec();
        await settle(subject, spec);
        const wanted = await pooled(subject, spec);
        const failed = await converge(subject, wanted, ({ outcome }) => outcome === 'failed');
        expect(reasonOf(failed)).toMatch(/^start connection pooler: .*(ErrImagePull|BackOff)/);
        expect((await settle(subject, spec)).steps).toEqual(['stop connection pooler']);
        await removeAll(subject, spec.id);
        expect(await subject.leftovers(spec.id)).toEqual([]);
      },
      { pooler: 'localhost/howdah/missing:1.25' },
    ),
  );

  test('is refused where the database has no function for it', () =>
    withSubject(async (subject) => {
      const spec = await subject.newSpec();
      await settle(subject, spec);
      const makeAgain = async (template: string): Promise<void> => {
        await subject.withClient(
          spec,
          async (client) => {
            await client.query('drop database tsdb with (force)');
            await client.query(`create database tsdb template ${template}`);
          },
          undefined,
          { database: 'other' },
        );
      };
      await subject.withClient(spec, (client) => client.query('create database other'));
      await makeAgain('template0');
      const wanted = await pooled(subject, spec);
      const failed = await converge(subject, wanted, ({ outcome }) => outcome === 'failed');
      expect(reasonOf(failed)).toContain('its database has no function');
      expect(await podsOf(subject, spec)).toEqual([]);
      await makeAgain('template1');
      await settle(subject, wanted);
      expect(await logsIn(subject, wanted)).toBe(true);
      await removeAll(subject, spec.id);
    }));
});

test('clients of a pooler go on after a failover, and lose no acknowledged write', () =>
  withSubject(async (subject) => {
    const spec = await pooled(subject, replicated(subject, await subject.newSpec(), 1));
    const { records, projectId } = subject;
    await settle(subject, spec);
    const ledger = await openLedger((work) =>
      subject.withClient(at(spec), work, undefined, TRANSACTION),
    );
    await ledger.goesOn();
    await operator().api.remove(pathIn(namespaceOf(projectId), 'pods', `s-${spec.id}-1`), 0);
    await until('another server is the primary', async () => records.primary(spec.id) === 1);
    await ledger.goesOn();
    await settle(subject, spec);
    expect(await ledger.end()).toEqual([]);
    await removeAll(subject, spec.id);
    expect(await subject.leftovers(spec.id)).toEqual([]);
  }));
