/**
 * G11, the part of the pooler: cost and benefit of PgBouncer in front of a service, against the
 * port of the same service and a PgBouncer by hand.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { findDaemon } from '../packages/server/src/engine/local/host/daemon.ts';
import { prepareMachine } from '../packages/server/src/engine/local/host/machine.ts';
import type { Machine } from '../packages/server/src/engine/local/host/machine-record.ts';
import { childrenOf } from '../packages/server/src/lib/processes.ts';
import {
  issueServerCertificate,
  openCertificateAuthority,
} from '../packages/server/src/lib/tls.ts';
import type { Bench } from './lib/bench.ts';
import { atEnd } from './lib/cleanup.ts';
import { create, openCloud, remove, type Cloud, type Service } from './lib/cloud.ts';
import { interleave, measured, summarize, valuesOf, type Case } from './lib/measure.ts';
import { treeMegabytes } from './lib/processes.ts';
import { freePort, has, run } from './lib/run.ts';
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
    if (!(await has('pgbench')))
      return [skipped('G11', 'pooler', 'pgbench is missing: apt-get install postgresql-contrib')];
    if (!(await has('pgbouncer')))
      return [skipped('G11', 'pooler', 'PgBouncer is missing: apt-get install pgbouncer')];
    const cloud = await openCloud(here.directory);
    const service = await create(cloud, { ...SIZE, enable_pooler: true });
    const pooled = (await cloud.get(service.id)).connection_pooler?.endpoint.port ?? 0;
    const bench = (port: number, database: string, options: readonly string[]) =>
      pgbench(cloud, service, port, database, options);
    const byHand = await poolerByHand(cloud, service, await prepareMachine(cloud.home));
    await bench(service.port, 'tsdb', ['-i', '-q', '-s', '10']);

    const rows: Row[] = [];
    for (const { clients, bound } of LOADS) {
      const what = `pgbench -S through the pooler by transaction, ${clients} ${clients === 1 ? 'client' : 'clients'}`;
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
            'one thread of PgBouncer ends TLS for all clients; pgbench, PgBouncer and PostgreSQL share the cores',
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

/** A PgBouncer with TLS, a pool and the one password, and nothing else. */
async function poolerByHand(
  cloud: Cloud,
  service: Service,
  { layout, owner }: Machine,
): Promise<{ port: number; end: () => Promise<void> }> {
  const directory = await mkdtemp(join(cloud.home, '..', 'pgbouncer-'));
  const { certificatePem, keyPem } = await issueServerCertificate(
    await openCertificateAuthority(join(cloud.home, 'ca')),
    ['127.0.0.1'],
  );
  const port = await freePort();
  const conf = [
    '[databases]',
    `tsdb_transaction = host=${layout.service(service.id).socket} port=${service.port} dbname=tsdb pool_mode=transaction pool_size=80`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = scram-sha-256',
    `auth_file = ${directory}/users`,
    'client_tls_sslmode = require',
    `client_tls_cert_file = ${directory}/server.crt`,
    `client_tls_key_file = ${directory}/server.key`,
    'log_connections = 0',
    'log_disconnections = 0',
    '',
  ].join('\n');
  const files = {
    'pgbouncer.ini': conf,
    users: `"tsdbadmin" "${service.password}"\n`,
    'server.crt': certificatePem,
    'server.key': keyPem,
  };
  for (const [name, text] of Object.entries(files))
    await writeFile(join(directory, name), text, { mode: 0o600 });
  if (owner !== null)
    for (const name of ['', ...Object.keys(files)])
      await chown(join(directory, name), owner.uid, owner.gid);
  // In another session, as if started by a service manager: in the session of pgbench the scheduler
  // lets the two share a part of the processors.
  const child = spawn('pgbouncer', ['-q', join(directory, 'pgbouncer.ini')], {
    stdio: 'ignore',
    detached: true,
    ...owner,
  });
  const end = atEnd(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill();
    await once(child, 'exit');
  });
  return { port, end };
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
      what: `memory (PSS) of an idle client, ${IDLE_CLIENTS} through the pooler on ${pooled.backends} more server connections`,
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

async function pgbench(
  cloud: Cloud,
  service: Service,
  port: number,
  database: string,
  options: readonly string[],
): Promise<string> {
  const env = {
    PATH: process.env['PATH'] ?? '',
    PGPASSWORD: service.password,
    PGSSLMODE: 'verify-full',
    PGSSLROOTCERT: `${cloud.home}/ca/ca.pem`,
  };
  return run(
    'pgbench',
    ['-h', '127.0.0.1', '-p', String(port), '-U', 'tsdbadmin', ...options, database],
    { env },
  );
}

function rateOf(output: string): number {
  const rate = /^tps = ([\d.]+)/m.exec(output)?.[1];
  if (rate === undefined) throw new Error(`pgbench said no rate: ${output}`);
  return Number(rate);
}
