/** A service moves to Kubernetes, under a client that counts its acknowledged writes. */
import { describe, expect, test } from 'vitest';
import { connectTo } from '../test/harness.ts';
import type { Service } from '../test/harness-caller.ts';
import { rig, untilSound } from './cloud.ts';
import { SUPERUSER } from './faults.ts';
import { openLedger } from './ledger.ts';
import { NO_VECTOR, VECTOR } from './local-postgres.ts';
import { stageMoves } from './moves-cloud.ts';
import { namespaceOf, podOf } from './probe.ts';
import { untilExpected } from '../test/until.ts';

/** In the pod of a copy: it gets WAL and does not replay it. */
const PAUSE = `${SUPERUSER} --command='select pg_wal_replay_pause()'`;
/** The WAL receiver holds the connection, and reads nothing from it. */
const FREEZE =
  'for one in /proc/[0-9]*; do ' +
  'if grep --quiet --text "wal[r]eceiver" $one/cmdline; then kill -STOP ${one#/proc/}; fi; done';

const MAY_MAKE_ROLES = `has_function_privilege(
  'timescale_functions.create_bare_readonly_role(text, text)', 'execute')`;
const ROLES_OF_MOVES = `(select string_agg(rolname, ', ') from pg_roles
  where rolname in ('postgres', 'streaming_replica', 'howdah_control'))`;

describe('a move to Kubernetes', () => {
  const stage = stageMoves({ ports: '30600-30699', words: ['--extensions', '17=vector'] });
  const { cli, moveOf, stepsOf, untilIn, crash, withSession, purge } = stage;

  test('loses no acknowledged write when the control plane is killed twice', async () => {
    const service = await stage.create('moved', 'local');
    const { service_id: id, initial_password: password } = service;
    await stage.fill(service, password);
    // The pooler's port here is none of the other region.
    await cli('service', 'enable-pooler', 'moved');
    await cli('service', 'disable-pooler', 'moved');
    const ledger = await stage.openLedgerOf(id, password);
    await beginMove(id);
    await crash();
    await ledger.goesOn();
    await untilIn(id, 'kube');
    await crash();
    const moved = await stage.cloud.until(id, 'READY');
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    const operation = await moveOf(id);
    expect(operation).toMatchObject({ status: 'succeeded' });
    expect(operation?.steps.at(-1)?.detail).toMatch(
      /^nobody could write for \d+\.\d s; its former/,
    );
    // No module of the image enforces what these functions promise.
    expect(await valueOf({ ...moved, initial_password: password }, MAY_MAKE_ROLES)).toBe(false);
    await expectWhole(moved, password);
    // The service's former server is stopped, and stays so: clients get its endpoint.
    const { host, port } = moved.endpoint;
    const refusal = () => withSession(service, password, async () => true).catch(String);
    const answer = `error: this service has moved to another region: connect to ${host}:${port}`;
    await untilExpected('the move is refused', async () => expect(await refusal()).toBe(answer));
    await crash();
    await untilExpected('the move is refused', async () => expect(await refusal()).toBe(answer));
    await untilSound(stage.cloud);
    await purge(service);
    expect(await refusal()).toContain('ECONNREFUSED');
  });

  test.each([
    ['replays nothing', PAUSE],
    // The server waits for its sender, and is killed after its last checkpoint.
    ['receives nothing', FREEZE],
  ])(
    'goes on where it was when its copy %s',
    { timeout: 240_000, tags: 'slow' },
    async (name, hindrance) => {
      const service = await stage.create(name.replace(' ', '-'), 'local');
      const { service_id: id, initial_password: password } = service;
      // A copied database has the functions too.
      await withSession(service, password, (client) =>
        client.query('create database copied template tsdb'),
      );
      const ledger = await openLedger((work) => withSession(service, password, work));
      const started = await valueOf(service, 'pg_postmaster_start_time()');
      await beginMove(id);
      // The service cannot be stopped while somebody holds the roles.
      const holder = await connectTo(stage.cloud, service, password);
      await holder.query('begin');
      await holder.query('create role bystander');
      await untilExpected('the move stops the source', async () =>
        expect(await stepsOf(id)).toContain('stop the source'),
      );
      await rig().exec({ metadata: podOfCopy(id) }, hindrance);
      expect(await valueOf(service, MAY_MAKE_ROLES)).toBe(false);
      expect(await valueOf(service, MAY_MAKE_ROLES, 'copied')).toBe(false);
      await crash();
      await holder.query('rollback');
      await holder.end();
      await untilExpected('the move has failed', async () =>
        expect((await moveOf(id))?.status).toBe('failed'),
      );
      // PostgreSQL may have written its last checkpoint before it is killed, or not.
      expect((await moveOf(id))?.error).toMatch(
        /^(the copy has not all of it|its server was not shut down in order)$/,
      );
      await expectBefore(service);
      await ledger.goesOn();
      expect(await ledger.end()).toEqual([]);
      // The service was stopped: what was under way then is not lost.
      expect(await valueOf(service, 'pg_postmaster_start_time()')).not.toEqual(started);
      await purge(service);
    },
  );

  test(
    'takes an extension along if the image has its version',
    { timeout: 240_000, tags: 'slow' },
    async () => {
      const service = await stage.create('extended', 'local');
      const { service_id: id, initial_password: password } = service;
      const run = (sql: string) => withSession(service, password, (client) => client.query(sql));
      await run(`create extension vector version '${NO_VECTOR}'`);
      await beginMove(id);
      await untilExpected('the move names the missing extension', async () =>
        expect((await moveOf(id))?.error).toContain(`it has the extensions "vector ${NO_VECTOR}"`),
      );
      await expectBefore(service);
      await run(`drop extension vector; create extension vector version '${VECTOR}'`);
      await beginMove(id);
      await stage.cloud.request('POST', `/operations/${(await moveOf(id))?.id}/cancel`);
      await expectBefore(service);
      await beginMove(id);
      await untilIn(id, 'kube');
      const late = await stage.cloud.request(
        'POST',
        `/operations/${(await moveOf(id))?.id}/cancel`,
      );
      expect(late).toMatchObject({ status: 400, body: { code: 'INVALID_STATE' } });
      const moved = await stage.cloud.until(id, 'READY');
      expect(await valueOf({ ...moved, initial_password: password }, 'vector_of_a_test()')).toBe(1);
      await purge(service);
    },
  );

  async function beginMove(id: string): Promise<void> {
    // An earlier move may not have ended yet.
    const begin = () =>
      stage.cloud.request('POST', `/services/${id}/move`, { region_code: 'kube' });
    await untilExpected('the move is accepted', async () =>
      expect((await begin()).status).toBe(202),
    );
    await untilExpected('the move creates the Cluster', async () =>
      expect(await stepsOf(id)).toContain('create Cluster'),
    );
  }

  const podOfCopy = (id: string) => ({
    namespace: namespaceOf(stage.cloud.projectId),
    name: podOf(id, 0),
  });

  type Reached = Pick<Service, 'endpoint'> & { initial_password: string };
  async function valueOf(
    { initial_password: password, ...at }: Reached,
    sql: string,
    database = 'tsdb',
  ): Promise<unknown> {
    const client = await connectTo(stage.cloud, at, password, { database });
    try {
      return Object.values(Object((await client.query(`select ${sql}`)).rows[0]))[0];
    } finally {
      await client.end();
    }
  }

  /** An aborted move leaves a service as it was, and nothing of its copy. */
  async function expectBefore(service: Reached & { service_id: string }): Promise<void> {
    await untilSound(stage.cloud);
    const before = await stage.cloud.get(service.service_id);
    expect(before).toMatchObject({ status: 'READY', region_code: 'local' });
    await untilExpected('no role of the move is left', async () =>
      expect(await valueOf(service, ROLES_OF_MOVES)).toBe(null),
    );
    await untilExpected('the user may create roles again', async () =>
      expect(await valueOf(service, MAY_MAKE_ROLES)).toBe(true),
    );
  }

  /** Everything that a service on Kubernetes has works for one that has moved there. */
  async function expectWhole(moved: Service, password: string): Promise<void> {
    expect(moved.endpoint.host).toBe(rig().host);
    await stage.expectFilled(moved, password);
    // Statements are refused until the operator has set the reader's password.
    const counted = ['query', 'moved', 'select count(*) as found from filled'];
    await untilExpected('the copy has all rows', async () =>
      expect((await stage.cloud.cli(...counted)).stdout).toMatch(/50000/),
    );
    await stage.expectPooled(moved.service_id, password);
    const pod = podOfCopy(moved.service_id);
    const sql = 'select rolname from pg_authid where rolsuper and rolpassword is not null';
    expect(await rig().exec({ metadata: pod }, `${SUPERUSER} -At -d tsdb -c '${sql}'`)).toBe('');
    const updated = { password: 'Another-password-1' };
    const changed = await stage.cloud.request(
      'POST',
      `/services/${moved.service_id}/updatePassword`,
      updated,
    );
    expect(changed).toMatchObject({ status: 204 });
    expect(await withSession(moved, updated.password, async () => true)).toBe(true);
    await cli('service', 'restart', 'moved');
    expect(await withSession(moved, updated.password, async () => true)).toBe(true);
  }
});
