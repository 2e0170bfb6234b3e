/**
 * G11, the part of the pooler: cost and benefit of PgBouncer in front of a service, against the
 * port of the same service and a PgBouncer by hand.
 */
import { Client } from 'pg';
import { findDaemon } from '../packages/server/src/engine/local/host/daemon.ts';
import { prepareMachine } from '../packages/server/src/engine/local/host/machine.ts';
import { ownerOf } from '../packages/server/src/engine/local/host/users.ts';
import { childrenOf } from '../packages/server/src/lib/processes.ts';
import type { Bench } from './lib/bench.ts';
import { create, openCloud, remove, type Cloud, type Service } from './lib/cloud.ts';
import { interleave, measured, summarize, valuesOf, type Case } from './lib/measure.ts';
import { caFileOf, pgbench, PGBENCH_MISSING, rateOf } from './lib/pgbench.ts';
import { PGBOUNCER_MISSING, poolerByHand } from './lib/pooler-by-hand.ts';
import { treeMegabytes } from './lib/processes.ts';
import { has, run } from './lib/run.ts';
import { bounded, compared, skipped, type Row } from './lib/table.ts';

const SECONDS = 4;
const IDLE_CLIENTS = 500;
/** All of a machine with two cores, so that no limit of the service is measured. */
const SIZE = { cpu_millis: 2000, memory_gbs: 8 };

/** The number of clients, and the share of the direct rate that the goal asks for. */
const LOADS = [
  { clients: 1, bound: null },
  { clients: 8, bound: { atLeast: 0.9 } },
  { clients: 32, bound: { atLeast: 1 } },
] as const;

export const pooler: Bench = {
  name: 'pooler',
  title: 'G11: through the pooler against TLS direct',
  run: async ({ here, rounds, say }) => {
    if (!(await has('pgbench'))) return [skipped('G11', 'pooler', PGBENCH_MISSING)];
    if (!(await has('pgbouncer'))) return [skipped('G11', 'pooler', PGBOUNCER_MISSING)];
    const cloud = await openCloud(here.directory);
    const service = await create(cloud, { ...SIZE, enable_pooler: true });
    const pooled = (await cloud.get(service.id)).connection_pooler?.endpoint.port ?? 0;
    const bench = (port: number, database: string, options: readonly string[]) =>
      pgbench({ port, database, password: service.password, caFile: caFileOf(cloud) }, options);
    const byHand = await startByHand(cloud, service);
    await bench(service.port, 'tsdb', ['-i', '-q', '-s', '10']);

    const rows: Row[] = [];
    for (const { clients, bound } of LOADS) {
      const what =
        'pgbench -S through the pooler by transaction, ' +
        `${clients} ${clients === 1 ? 'client' : 'clients'}`;
      const load = ['-n', '-S', '-j', '1', '-T', String(SECONDS), '-c', String(clients)];
      const through = measured(async () => rateOf(await bench(pooled, 'tsdb_transaction', load)));
      const direct = measured(async () => rateOf(await bench(service.port, 'tsdb', load)));
      const throughHand = measured(async () =>
        rateOf(await bench(byHand.port, 'tsdb_transaction', load)),
      );
      await interleave(rounds, [through, direct, throughHand]);
      rows.push(
        againstHand(what, 'tps', through, throughHand),
        compared({
          goal: 'G11',
          what,
          unit: 'tps',
          ours: valuesOf(through),
          against: 'the service’s own port, TLS',
          theirs: valuesOf(direct),
          ratio: 'ours/theirs',
          bound,
          limit:
            'one thread of PgBouncer ends TLS for all clients; ' +
            'pgbench, PgBouncer and PostgreSQL share the cores',
        }),
      );
      say(`   ${clients}: ${rows.at(-1)?.ratio ?? ''}`);
    }

    const connecting = ['-n', '-S', '-C', '-j', '1', '-T', String(SECONDS), '-c', '4'];
    const through = measured(async () =>
      rateOf(await bench(pooled, 'tsdb_transaction', connecting)),
    );
    const direct = measured(async () => rateOf(await bench(service.port, 'tsdb', connecting)));
    const throughHand = measured(async () =>
      rateOf(await bench(byHand.port, 'tsdb_transaction', connecting)),
    );
    await interleave(rounds, [through, direct, throughHand]);
    rows.push(
      againstHand(
        'a connection for each SELECT through the pooler, 4 clients',
        '/s',
        through,
        throughHand,
      ),
      compared({
        goal: 'G11',
        what: 'a connection for each SELECT through the pooler, 4 clients',
        unit: '/s',
        ours: valuesOf(through),
        against: 'the service’s own port, TLS',
        theirs: valuesOf(direct),
        ratio: 'ours/theirs',
        bound: { atLeast: 10 },
        limit: 'TLS and the 4096 rounds of SCRAM, twice: in the client and in PgBouncer',
      }),
      ...(await idleClients(cloud, service, pooled)),
    );
    await byHand.end();
    await remove(cloud, service.id);
    await cloud.end();
    return rows;
  },
};

/**
 * The share of the rate of a PgBouncer by hand; the goal is against direct connections, which a
 * PgBouncer by hand may miss too.
 */
function againstHand(what: string, unit: string, ours: Case, theirs: Case): Row {
  return compared({
    goal: 'G11',
    what,
    unit,
    ours: valuesOf(ours),
    against: 'PgBouncer by hand',
    theirs: valuesOf(theirs),
    ratio: 'ours/theirs',
    bound: null,
    limit: 'the same program, in front of the same server',
  });
}

/** A PgBouncer by hand before a service, as its user: no other enters its socket directory. */
async function startByHand(
  cloud: Cloud,
  { id, port, password }: Service,
): ReturnType<typeof poolerByHand> {
  const machine = await prepareMachine(cloud.home);
  const paths = machine.layout.service(id);
  return poolerByHand(cloud, { socket: paths.socket, port, password }, ownerOf(machine, paths));
}

/**
 * The cost of many idle clients: through the pooler, and direct, as many as
 * the service itself allows.
 */
async function idleClients(cloud: Cloud, service: Service, pooledPort: number): Promise<Row[]> {
  const { layout } = await prepareMachine(cloud.home);
  const paths = layout.service(service.id);
  const connectMany = async (port: number, database: string, count: number): Promise<Client[]> => {
    const clients: Client[] = [];
    for (let n = 0; n < count; n++) {
      const client = new Client({
        host: '127.0.0.1',
        port,
        user: 'tsdbadmin',
        database,
        password: service.password,
        ssl: { ca: cloud.ca },
      });
      client.on('error', () => undefined);
      await client.connect();
      await client.query('select 1');
      clients.push(client);
    }
    return clients;
  };
  const megabytes = async (): Promise<number> => {
    const pgbouncer = await findDaemon(paths.pooler);
    const server = Number(await run('cat', [paths.pidFile]));
    return (
      (await treeMegabytes(server)) + (pgbouncer === null ? 0 : await treeMegabytes(pgbouncer.pid))
    );
  };
  const backends = async (): Promise<number> => {
    const [postmaster] = await childrenOf(Number(await run('cat', [paths.pidFile])));
    return postmaster === undefined ? 0 : (await childrenOf(postmaster)).length;
  };

  const before = { megabytes: await megabytes(), backends: await backends() };
  const pooledClients = await connectMany(pooledPort, 'tsdb_transaction', IDLE_CLIENTS);
  const pooled = {
    megabytes: (await megabytes()) - before.megabytes,
    backends: (await backends()) - before.backends,
  };
  for (const client of pooledClients) await client.end();
  const directCount = IDLE_CLIENTS / 5;
  const beforeDirect = await megabytes();
  const directClients = await connectMany(service.port, 'tsdb', directCount);
  const direct = (await megabytes()) - beforeDirect;
  for (const client of directClients) await client.end();
  return [
    compared({
      goal: 'G11',
      what:
        `memory (PSS) of an idle client, ${IDLE_CLIENTS} through the pooler on ` +
        `${pooled.backends} more server connections`,
      unit: 'KB',
      ours: summarize([(pooled.megabytes * 1000) / IDLE_CLIENTS]),
      against: `${directCount} clients on the service’s own port`,
      theirs: summarize([(direct * 1000) / directCount]),
      ratio: 'theirs/ours',
      bound: null,
      limit: 'the state of TLS of each client',
    }),
    bounded({
      goal: 'G11',
      what: `memory (PSS) of ${IDLE_CLIENTS} idle clients through the pooler`,
      unit: 'MB',
      ours: summarize([pooled.megabytes]),
      bound: null,
      limit: 'the state of TLS of each client',
    }),
  ];
}
