/** Read replica sets: what their nodes have, what they refuse, and when they are made again. */
import { Type } from 'typebox';
import { describe, expect, test } from 'vitest';
import type { OperationKind } from '@howdah/contract';
import type { ServiceSpec } from '../test/probe.ts';
import { operator, rig } from './cloud.ts';
import { paused, pathOf, SUPERUSER, withSubject } from './faults.ts';
import { CLUSTERS, pathIn } from './operator/cluster.ts';
import { namespaceOf, podIn, podOf, removeAll, runStatement, setName, settle } from './probe.ts';
import type { KubernetesSubject } from './subject.ts';
import { until } from '../test/until.ts';

async function setOf(
  subject: KubernetesSubject,
  service: ServiceSpec,
  nodes: number,
): Promise<ServiceSpec> {
  return {
    ...(await subject.newSpec()),
    firstVerifier: null,
    set: { parent: service.id, nodes, purpose: 'reports' },
  };
}

const serverIn = ({ projectId }: KubernetesSubject, name: string) => ({
  metadata: { namespace: namespaceOf(projectId), name },
});

/** Runs SQL as the superuser in the first server of a service. */
function asSuperuser(
  subject: KubernetesSubject,
  { id }: ServiceSpec,
  ...sql: readonly string[]
): Promise<string> {
  const commands = sql.map((one) => `--command='${one}'`).join(' ');
  const psql = `${SUPERUSER} --dbname=tsdb --tuples-only --no-align`;
  return rig().exec(serverIn(subject, podOf(id, 0)), `${psql} ${commands}`);
}

const untilRows = (subject: KubernetesSubject, spec: ServiceSpec, rows: number) =>
  until('the set has the rows', async () => (await subject.countRows(spec)) === rows);

describe.concurrent('a read replica set', () => {
  test('has the data and the password of its service on each node, and takes no writes', () =>
    withSubject(async (subject) => {
      const { engine } = subject;
      const service = await subject.newSpec();
      await settle(subject, service);
      const set = await setOf(subject, service, 2);
      expect((await settle(subject, set)).steps).toEqual([
        'create Cluster',
        'start PostgreSQL',
        'connect',
      ]);
      expect(await engine.observe.replicas(set.id)).toMatchObject([
        { node: 1, serving: true },
        { node: 2, serving: true },
      ]);
      await subject.insertRows(service, 3);
      await untilRows(subject, set, 3);
      await expect(subject.insertRows(set, 1)).rejects.toThrow(/read-only transaction/);
      // Each node, by the addresses of its pods.
      const seen = new Set<string>();
      await until('both nodes answer', async () => {
        const sql = 'select inet_server_addr()::text || pg_is_in_recovery()::text as at';
        const { rows } = await subject.withClient(set, (client) => client.query(sql));
        seen.add(String(Object(rows[0]).at));
        return seen.size === 2;
      });
      expect([...seen].every((at) => at.endsWith('true'))).toBe(true);
      const verifier = await subject.verifierOf('another-password');
      const change = { isPaused: false, keepSessions: false, sets: [set.id] };
      await engine.sql.setPassword(service.id, verifier, change);
      await until('the password follows', () => subject.canLogIn(set, 'another-password'));
      const { rows } = await runStatement(subject, set, 'select count(*) from suite');
      expect(rows).toEqual([['3']]);
      await until('the nodes have figures', async () => {
        const usage = await engine.observe.usage(set.id).catch(() => []);
        return usage.length === 2 && usage.every(({ lag }) => lag !== null && lag.seconds < 60);
      });
      await removeAll(subject, set.id, service.id);
      expect(await subject.leftovers(set.id)).toEqual([]);
      await removeAll(subject, service.id);
    }));

  test('stops and starts with its service, and follows it to a larger size', () =>
    withSubject(async (subject) => {
      const service = await subject.newSpec();
      await settle(subject, service);
      const set = await setOf(subject, service, 1);
      const plan = (kind: OperationKind, spec: ServiceSpec, running = true) =>
        subject.engine.lifecycle.plan(kind, spec, running, set.size);
      const created = plan('create', set, false);
      expect((await settle(subject, set)).steps).toEqual(created);
      const small = { ...set, size: { cpuMillis: 100, memoryGbs: 1 } } as const;
      const resized = plan('resize', small);
      expect((await settle(subject, small)).steps).toEqual(resized);
      const stopped = plan('stop', paused(set));
      expect((await settle(subject, paused(set))).steps).toEqual(stopped);
      await settle(subject, paused(service));
      expect(await subject.canLogIn(set, subject.firstPassword)).toBe(false);
      const larger = { ...service, size: { cpuMillis: 250, memoryGbs: 3 } } as const;
      await settle(subject, larger);
      await settle(subject, set);
      await subject.insertRows(service, 2);
      await untilRows(subject, set, 2);
      const sql = 'show max_connections';
      const { rows } = await subject.withClient(set, (client) => client.query(sql));
      expect(rows).toEqual([{ max_connections: '150' }]);
      await removeAll(subject, set.id, service.id);
      await removeAll(subject, service.id);
    }));

  test('that was away for too long is made again, and never shows what is old', () =>
    withSubject(async (subject) => {
      const service = await subject.newSpec();
      await settle(subject, service);
      const set = await setOf(subject, service, 1);
      await settle(subject, set);
      await subject.insertRows(service, 1);
      await untilRows(subject, set, 1);
      await settle(subject, paused(set));
      await operator().api.merge(`${pathOf(subject, service)}?fieldManager=somebody`, {
        spec: { postgresql: { parameters: { wal_keep_size: '0' } } },
      });
      await until(
        'the setting',
        async () => (await asSuperuser(subject, service, 'show wal_keep_size')).trim() === '0',
      );
      await subject.insertRows(service, 1);
      for (let segment = 0; segment < 4; segment += 1)
        await asSuperuser(
          subject,
          service,
          'create table segment ()',
          'drop table segment',
          'select pg_switch_wal()',
          'checkpoint',
        );
      const found: number[] = [];
      const reading = new AbortController();
      const read = (async () => {
        while (!reading.signal.aborted) {
          const rows = await subject.countRows(set).catch(() => null);
          if (rows !== null) found.push(rows);
          await subject.wait(50);
        }
      })();
      const { steps } = await settle(subject, set);
      expect(steps).toEqual([
        'remove nodes that cannot follow',
        'create Cluster',
        'start PostgreSQL',
        'connect',
      ]);
      await untilRows(subject, set, 2);
      await until('a read is answered', async () => found.length > 0);
      reading.abort();
      await read;
      expect(new Set(found)).toEqual(new Set([2]));
      await removeAll(subject, set.id, service.id);
      await removeAll(subject, service.id);
    }));

  test('ends the sessions of other networks', { tags: 'slow' }, () =>
    withSubject(async (subject) => {
      const service = await subject.newSpec();
      await settle(subject, service);
      const set = await setOf(subject, service, 1);
      const limited = { ...set, allowedNetworks: [subject.clientNetwork] };
      await settle(subject, limited);
      const { steps } = await subject.withClient(set, async (client) => {
        const changed = await settle(subject, { ...set, allowedNetworks: ['192.0.2.0/24'] });
        await expect(client.query('select 1')).rejects.toThrow(/is not queryable|terminat(ed|ing)/);
        return changed;
      });
      expect(steps).toEqual(['restart PostgreSQL', 'connect']);
      await expect(subject.withClient(set, async () => true)).rejects.toThrow(/pg_hba.conf/);
      await settle(subject, set);
      expect(await subject.canLogIn(set, subject.firstPassword)).toBe(true);
      await removeAll(subject, set.id, service.id);
      await removeAll(subject, service.id);
    }),
  );

  test('has a pooler of its own, for the roles of its service', () =>
    withSubject(async (subject) => {
      const service = await subject.newSpec();
      await settle(subject, service);
      const set = await setOf(subject, service, 1);
      const pooled = { ...set, pooler: { port: await subject.newPort() } };
      const { steps } = await settle(subject, pooled);
      expect(steps.at(-1)).toBe('start connection pooler');
      const at = { ...set, endpoint: { ...set.endpoint, port: pooled.pooler.port } };
      for (const database of ['tsdb', 'tsdb_transaction'])
        await expect(
          subject.withClient(at, (client) => client.query('create table t ()'), undefined, {
            database,
          }),
        ).rejects.toThrow(/read-only transaction/);
      const limited = { ...pooled, allowedNetworks: [subject.clientNetwork] };
      expect((await settle(subject, limited)).steps.at(-1)).toBe('reload connection pooler');
      expect(await subject.withClient(at, async () => true)).toBe(true);
      await removeAll(subject, set.id, service.id);
      expect(await subject.leftovers(set.id)).toEqual([]);
      await removeAll(subject, service.id);
    }));

  test('whose Cluster somebody has deleted is made again', { tags: 'slow' }, () =>
    withSubject(async (subject) => {
      const service = await subject.newSpec();
      await settle(subject, service);
      const set = await setOf(subject, service, 1);
      await settle(subject, set);
      const name = setName(set.id);
      const path = `${CLUSTERS}/namespaces/${namespaceOf(subject.projectId)}/clusters/${name}`;
      const { spec } = await operator().api.read(path, Type.Object({ spec: Type.Unknown() }));
      expect(spec).toMatchObject({ replica: { enabled: true, source: `s-${service.id}` } });
      await operator().api.remove(path);
      await until('the set is made again', async () =>
        (await settle(subject, { ...set, provisioned: true })).steps.includes('create Cluster'),
      );
      await subject.insertRows(service, 5);
      await untilRows(subject, set, 5);
      // A node that dies comes back.
      const pods = pathIn(namespaceOf(subject.projectId), 'pods');
      await operator().api.remove(`${pods}/${podIn(name, 0)}`, 0);
      await until('the set serves again', async () => {
        await settle(subject, set);
        return (await subject.countRows(set).catch(() => 0)) === 5;
      });
      await removeAll(subject, set.id, service.id);
      await removeAll(subject, service.id);
    }),
  );
});
