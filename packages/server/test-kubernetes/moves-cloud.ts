/**
 * A control plane with a region on this machine and one on Kubernetes, between which services move.
 */
import { afterAll, beforeAll, expect } from 'vitest';
import { connectTo, install, makeHome, type Installation } from '../test/harness.ts';
import type { Service } from '../test/harness-caller.ts';
import { poolerImage, rig, untilSound } from './cloud.ts';
import { openLedger } from './ledger.ts';
import { linkPostgres } from './local-postgres.ts';
import { untilExpected } from '../test/until.ts';

type Client = Awaited<ReturnType<typeof connectTo>>;
type At = Pick<Service, 'endpoint'>;
type Stage = Readonly<{
  /** The ports of the region on Kubernetes. */
  ports: string;
  /** More words of `howdah region add`. */
  words?: readonly string[];
  /** More settings of the control plane. */
  settings?: Readonly<Record<string, string>>;
}>;

/** Makes it for the tests of the suite that calls this. */
export function stageMoves({ ports, words = [], settings = {} }: Stage) {
  let cloud: Installation;
  beforeAll(async () => {
    const home = await makeHome();
    await linkPostgres(home, rig().snapshots);
    cloud = await install({
      HOWDAH_HOME: home,
      HOWDAH_HOST: '0.0.0.0',
      HOWDAH_PUBLIC_HOST: rig().machineHost,
      HOWDAH_TLS: 'off',
      ...settings,
    });
    const { host, image, storageClass, kubeconfigPath } = rig();
    await cli(
      ...`region add kube --kubeconfig ${kubeconfigPath} --host ${host} --ports ${ports}`.split(
        ' ',
      ),
      ...`--storage-class ${storageClass} --image 17=${image}`.split(' '),
      '--pooler-image',
      poolerImage(),
      ...words,
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

  /** @param to where the service was, or is */
  async function withSession<T>(
    to: At,
    password: string,
    work: (client: Client) => Promise<T>,
  ): Promise<T> {
    const client = await connectTo(cloud, to, password);
    try {
      return await work(client);
    } finally {
      await client.end();
    }
  }

  return {
    get cloud() {
      return cloud;
    },
    cli,
    moveOf,
    stepsOf: async (id: string) => ((await moveOf(id))?.steps ?? []).map(({ name }) => name),
    untilIn: (id: string, region: string) =>
      untilExpected(`the service is in the region ${region}`, async () =>
        expect((await cloud.get(id)).region_code).toBe(region),
      ),
    crash: async (): Promise<void> => {
      await cloud.stop('SIGKILL');
      await cloud.up();
    },
    withSession,
    /** A client that follows the service to where it is. */
    openLedgerOf: (id: string, password: string) =>
      openLedger(async (work) => withSession(await cloud.get(id), password, work)),
    ...createServices(() => cloud, { cli, withSession }),
  };
}

type Tools = Readonly<{
  cli: (...args: string[]) => Promise<string>;
  withSession: <T>(to: At, password: string, work: (client: Client) => Promise<T>) => Promise<T>;
}>;

/** Services that move, filled with rows and a role. */
function createServices(at: () => Installation, { cli, withSession }: Tools) {
  return {
    create: (name: string, region: string) =>
      at().create({
        name,
        region_code: region,
        service_type: 'POSTGRES',
        pg_version: '17',
        cpu_millis: 'shared',
        memory_gbs: 'shared',
      }),
    fill: (service: At, password: string) =>
      withSession(service, password, (client) =>
        client.query(`create table filled as
            select n, repeat('x', 100) from generate_series(1, 50000) n;
          create role reports login password 'Reports-password-1';
          grant select on filled to reports`),
      ),
    /** The service has its rows, its owner all rights, and other roles have their passwords. */
    expectFilled: async (service: At, password: string): Promise<void> => {
      await withSession(service, password, async (client) => {
        expect((await client.query('select from filled')).rowCount).toBe(50_000);
        await client.query('create role another; create table later ()');
      });
      const reports = { user: 'reports' };
      const client = await connectTo(at(), service, 'Reports-password-1', reports);
      expect((await client.query('select from filled limit 1')).rowCount).toBe(1);
      await client.end();
    },
    /** Gives it a pooler, and uses that. */
    expectPooled: async (id: string, password: string): Promise<void> => {
      await cli('service', 'enable-pooler', id);
      const { connection_pooler: pooler } = await at().get(id);
      if (pooler === undefined) throw new Error('it has no pooler');
      await withSession(pooler, password, (pooled) => pooled.query('select from filled limit 1'));
    },
    purge: async ({ service_id: id }: Pick<Service, 'service_id'>): Promise<void> => {
      await cli('service', 'delete', id);
      await cli('service', 'purge', id, '--yes');
      await untilSound(at());
    },
  };
}
