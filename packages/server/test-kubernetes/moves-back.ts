/** A service moves from Kubernetes, under a client that counts its acknowledged writes. */
import { describe, expect, test } from 'vitest';
import type { Service } from '../test/harness-caller.ts';
import { allPids, argumentsOf, readOrNull, signal } from '../test/probe.ts';
import { rig, untilSound } from './cloud.ts';
import { stageMoves } from './moves-cloud.ts';
import { untilExpected } from '../test/until.ts';

/** For so long the former Cluster is kept: the way back waits for its end. */
const KEPT_HOURS = '0.02';

describe('a move from Kubernetes', () => {
  const stage = stageMoves({
    ports: '31600-31699',
    settings: {
      HOWDAH_RESTORE_HOURS: KEPT_HOURS,
      // The packet filters of older installations here refuse connections of their users.
      HOWDAH_UID_RANGE: '96000-96999',
    },
  });
  const { cli, moveOf, stepsOf, untilIn, crash, withSession, purge, openLedgerOf } = stage;
  const untilStep = (id: string, name: string) =>
    untilExpected(`the move has the step ${name}`, async () =>
      expect(await stepsOf(id)).toContain(name),
    );
  async function beginMove(id: string, region = 'local'): Promise<void> {
    // The former server of an earlier move may be kept yet.
    const begin = () =>
      stage.cloud.request('POST', `/services/${id}/move`, { region_code: region });
    await untilExpected('the move is accepted', async () =>
      expect((await begin()).status).toBe(202),
    );
  }

  test('loses no acknowledged write, and the way back neither', { timeout: 900_000 }, async () => {
    const service = await stage.create('moving', 'kube');
    const { service_id: id, initial_password: password } = service;
    await stage.fill(service, password);
    await withSession(service, password, (client) =>
      client.query('create unlogged table queue ()'),
    );
    const refused = await stage.cloud.cli(
      ...'service move moving --region local --dry-run'.split(' '),
    );
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('it has the unlogged tables or sequences "queue"');
    await withSession(service, password, (client) => client.query('drop table queue'));
    const ledger = await openLedgerOf(id, password);
    await beginMove(id);
    for (const step of ['prepare roles for the copy', 'follow the service']) {
      await untilStep(id, step);
      await crash();
      await ledger.goesOn();
    }
    await untilIn(id, 'local');
    await crash();
    const moved = await stage.cloud.until(id, 'READY');
    await ledger.goesOn();
    const operation = await moveOf(id);
    expect(operation).toMatchObject({ status: 'succeeded' });
    const outage = operation?.steps.at(-1)?.detail ?? '';
    expect(outage).toMatch(/^nobody could write for \d+\.\d s; its former/);
    process.stdout.write(`a move from Kubernetes: ${outage}\n`);
    await expectGone(service, password);
    await crash();
    await expectGone(service, password);
    await expectWhole(moved, password);
    await untilSound(stage.cloud);
    // The service's former Cluster is removed first.
    await beginMove(id, 'kube');
    await untilIn(id, 'kube');
    await stage.cloud.until(id, 'READY');
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    expect(await moveOf(id)).toMatchObject({ status: 'succeeded' });
    await purge(service);
  });

  test('leaves the service as it was when it is cancelled', { timeout: 300_000 }, async () => {
    const service = await stage.create('cancelled', 'kube');
    const { service_id: id, initial_password: password } = service;
    const ledger = await openLedgerOf(id, password);
    await beginMove(id);
    await untilStep(id, 'copy the data');
    await stage.cloud.request('POST', `/operations/${(await moveOf(id))?.id}/cancel`);
    await expectBefore(service, password);
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    await purge(service);
  });

  test(
    'goes on in its region when its copy gets nothing',
    { timeout: 400_000, tags: 'slow' },
    async () => {
      const service = await stage.create('frozen', 'kube');
      const { service_id: id, initial_password: password } = service;
      const ledger = await openLedgerOf(id, password);
      const started = await startOf(service, password);
      await beginMove(id);
      await untilStep(id, 'stop the source');
      await freezeCopy();
      await crash();
      await untilExpected('the move has failed', async () =>
        expect((await moveOf(id))?.status).toBe('failed'),
      );
      expect((await moveOf(id))?.error).toBe('the copy has not all of it');
      await expectBefore(service, password);
      await ledger.goesOn();
      expect(await ledger.end()).toEqual([]);
      expect(await startOf(service, password)).not.toEqual(started);
      await purge(service);
    },
  );

  const startOf = (at: Pick<Service, 'endpoint'>, password: string) =>
    withSession(at, password, async (client) => {
      const { rows } = await client.query('select pg_postmaster_start_time() as at');
      return Object(rows[0]).at;
    });

  /** The service's copy holds the connection, and reads nothing from it. */
  async function freezeCopy(): Promise<void> {
    let frozen = 0;
    for (const pid of await allPids()) {
      if (!(await commandOf(pid)).includes('walreceiver')) continue;
      const [, parent] = /\) \S+ (\d+)/.exec((await readOrNull(`/proc/${pid}/stat`)) ?? '') ?? [];
      if (!(await commandOf(Number(parent))).includes(stage.cloud.home)) continue;
      signal(pid, 'SIGSTOP');
      frozen += 1;
    }
    expect(frozen).toBe(1);
  }

  const commandOf = async (pid: number) => (await argumentsOf(pid)).join(' ');

  const expectGone = (service: Pick<Service, 'endpoint'>, password: string) =>
    expect(withSession(service, password, async () => true)).rejects.toThrow();

  /** Nothing is left of a move that was given up. */
  async function expectBefore(
    { service_id: id, endpoint }: Pick<Service, 'service_id' | 'endpoint'>,
    password: string,
  ): Promise<void> {
    await untilSound(stage.cloud);
    expect(await stage.cloud.until(id, 'READY')).toMatchObject({ region_code: 'kube', endpoint });
    expect(await withSession({ endpoint }, password, async () => true)).toBe(true);
  }

  /** Everything that a service on a machine has works for one that has moved there. */
  async function expectWhole(moved: Service, password: string): Promise<void> {
    expect(moved.endpoint.host).toBe(rig().machineHost);
    await stage.expectFilled(moved, password);
    const counted = ['query', 'moving', 'select count(*) as found from filled'];
    expect(await cli(...counted)).toMatch(/50000/);
    await stage.expectPooled(moved.service_id, password);
    await cli('service', 'disable-pooler', 'moving');
    await cli('service', 'restart', 'moving');
    expect(await withSession(moved, password, async () => true)).toBe(true);
  }
});
