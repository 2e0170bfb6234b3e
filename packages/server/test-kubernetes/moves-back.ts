/** A service moves from Kubernetes, under a client that counts its acknowledged writes. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, makeHome, type Installation } from '../test/harness.ts';
import type { Service } from '../test/harness-caller.ts';
import { allPids, argumentsOf, readOrNull, signal } from '../src/lib/processes.ts';
import { poolerImage, rig } from './cloud.ts';
import { openLedger } from './ledger.ts';
import { linkPostgres } from './local-postgres.ts';

/** For so long the former Cluster is kept: long enough to look at it, also on a slow machine. */
const KEPT_HOURS = '0.05';

describe('a move from Kubernetes', () => {
  let cloud: Installation;

  beforeAll(async () => {
    const home = await makeHome();
    await linkPostgres(home, rig().snapshots);
    cloud = await install({
      HOWDAH_HOME: home,
      HOWDAH_HOST: '0.0.0.0',
      HOWDAH_PUBLIC_HOST: rig().machineHost,
      HOWDAH_TLS: 'off',
      HOWDAH_RESTORE_HOURS: KEPT_HOURS,
      // The packet filters of older installations here refuse connections of their users.
      HOWDAH_UID_RANGE: '96000-96999',
    });
    const { host, image, storageClass, kubeconfigPath } = rig();
    await cli(
      ...`region add kube --kubeconfig ${kubeconfigPath} --host ${host}`.split(' '),
      ...`--ports 31600-31699 --storage-class ${storageClass} --image 17=${image}`.split(' '),
      '--pooler-image',
      poolerImage(),
    );
  });
  afterAll(async () => {
    expect(await cloud?.destroy()).toEqual([]);
  });

  async function cli(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await cloud.cli(...args);
    expect({ code, stderr, args }).toMatchObject({ code: 0 });
    return stdout;
  }

  const moveOf = async (id: string) =>
    (await cloud.operations(id)).find(({ kind }) => kind === 'move');
  const stepsOf = async (id: string) => ((await moveOf(id))?.steps ?? []).map(({ name }) => name);
  const untilStep = (id: string, name: string) =>
    expect.poll(() => stepsOf(id), { timeout: 150_000, interval: 20 }).toContain(name);
  const untilIn = (id: string, region: string) =>
    expect
      .poll(async () => (await cloud.get(id)).region_code, { timeout: 150_000, interval: 50 })
      .toBe(region);

  async function crash(): Promise<void> {
    await cloud.stop('SIGKILL');
    await cloud.up();
  }

  async function withSession<T>(
    to: Pick<Service, 'endpoint'>,
    password: string,
    work: (client: Awaited<ReturnType<typeof connectTo>>) => Promise<T>,
  ): Promise<T> {
    const client = await connectTo(cloud, to, password);
    try {
      return await work(client);
    } finally {
      await client.end();
    }
  }

  const create = (name: string) =>
    cloud.create({
      name,
      region_code: 'kube',
      service_type: 'POSTGRES',
      pg_version: '17',
      cpu_millis: 'shared',
      memory_gbs: 'shared',
    });

  async function beginMove(id: string, region = 'local'): Promise<void> {
    // The former server of an earlier move may be kept yet.
    const begin = () => cloud.request('POST', `/services/${id}/move`, { region_code: region });
    await expect
      .poll(async () => (await begin()).status, { timeout: 400_000, interval: 1000 })
      .toBe(202);
  }

  /** A client that follows the service to where it is. */
  const openLedgerOf = (id: string, password: string) =>
    openLedger(async (work) => withSession(await cloud.get(id), password, work));

  test('loses no acknowledged write, and the way back neither', { timeout: 900_000 }, async () => {
    const service = await create('moving');
    const { service_id: id, initial_password: password } = service;
    await withSession(service, password, (client) =>
      client.query(`create table filled as
          select n, repeat('x', 100) from generate_series(1, 50000) n;
        create role reports login password 'Reports-password-1';
        grant select on filled to reports`),
    );
    await withSession(service, password, (client) =>
      client.query('create unlogged table queue ()'),
    );
    const refused = await cloud.cli(...'service move moving --region local --dry-run'.split(' '));
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
    const moved = await cloud.until(id, 'READY');
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
    await expect.poll(() => cloud.audit(), { timeout: 60_000 }).toEqual([]);
    // Its former Cluster is removed first.
    await beginMove(id, 'kube');
    await untilIn(id, 'kube');
    await cloud.until(id, 'READY');
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    expect(await moveOf(id)).toMatchObject({ status: 'succeeded' });
    await purge(service);
  });

  test('leaves the service as it was when it is cancelled', { timeout: 300_000 }, async () => {
    const service = await create('cancelled');
    const { service_id: id, initial_password: password } = service;
    const ledger = await openLedgerOf(id, password);
    await beginMove(id);
    await untilStep(id, 'copy the data');
    await cloud.request('POST', `/operations/${(await moveOf(id))?.id}/cancel`);
    await expectBefore(service, password);
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    await purge(service);
  });

  test('goes on in its region when its copy gets nothing', { timeout: 400_000 }, async () => {
    const service = await create('frozen');
    const { service_id: id, initial_password: password } = service;
    const ledger = await openLedgerOf(id, password);
    const started = await startOf(service, password);
    await beginMove(id);
    await untilStep(id, 'stop the source');
    await freezeCopy();
    await crash();
    await expect.poll(async () => (await moveOf(id))?.status, { timeout: 120_000 }).toBe('failed');
    expect((await moveOf(id))?.error).toBe('the copy has not all of it');
    await expectBefore(service, password);
    await ledger.goesOn();
    expect(await ledger.end()).toEqual([]);
    expect(await startOf(service, password)).not.toEqual(started);
    await purge(service);
  });

  const startOf = (at: Pick<Service, 'endpoint'>, password: string) =>
    withSession(at, password, async (client) => {
      const { rows } = await client.query('select pg_postmaster_start_time() as at');
      return Object(rows[0]).at;
    });

  /** Its copy holds the connection, and reads nothing from it. */
  async function freezeCopy(): Promise<void> {
    let frozen = 0;
    for (const pid of await allPids()) {
      if (!(await commandOf(pid)).includes('walreceiver')) continue;
      const [, parent] = /\) \S+ (\d+)/.exec((await readOrNull(`/proc/${pid}/stat`)) ?? '') ?? [];
      if (!(await commandOf(Number(parent))).includes(cloud.home)) continue;
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
    await expect.poll(() => cloud.audit(), { timeout: 120_000 }).toEqual([]);
    expect(await cloud.until(id, 'READY')).toMatchObject({ region_code: 'kube', endpoint });
    expect(await withSession({ endpoint }, password, async () => true)).toBe(true);
  }

  /** Everything that a service on a machine has works for one that has moved there. */
  async function expectWhole(moved: Service, password: string): Promise<void> {
    expect(moved.endpoint.host).toBe(rig().machineHost);
    await withSession(moved, password, async (client) => {
      expect((await client.query('select from filled')).rowCount).toBe(50_000);
      await client.query('create role another; create table later ()');
    });
    const reports = { user: 'reports' };
    const client = await connectTo(cloud, moved, 'Reports-password-1', reports);
    expect((await client.query('select from filled limit 1')).rowCount).toBe(1);
    await client.end();
    const counted = ['query', 'moving', 'select count(*) as found from filled'];
    expect(await cli(...counted)).toMatch(/50000/);
    await cli('service', 'enable-pooler', 'moving');
    const { connection_pooler: pooler } = await cloud.get(moved.service_id);
    if (pooler === undefined) throw new Error('it has no pooler');
    await withSession(pooler, password, (pooled) => pooled.query('select from filled limit 1'));
    await cli('service', 'disable-pooler', 'moving');
    await cli('service', 'restart', 'moving');
    expect(await withSession(moved, password, async () => true)).toBe(true);
  }

  async function purge({ service_id: id }: Pick<Service, 'service_id'>): Promise<void> {
    await cli('service', 'delete', id);
    await cli('service', 'purge', id, '--yes');
    await expect.poll(() => cloud.audit(), { timeout: 120_000 }).toEqual([]);
  }
});
