/** A server as CloudNativePG makes one for a service of ours: the source of a copy. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { POOLER_TEMPLATE_SQL } from '../test-kubernetes/probe.ts';
import {
  adminRights,
  type ClientCertificate,
  COPY_APPLICATION,
  type Installation,
  issueClientCertificate,
  issueServerCertificate,
  openCertificateAuthority,
  POOLER_ROLE,
  READER_ROLE,
  REVOKE_WRITERS,
  scramVerifier,
} from './probe.ts';
import { until } from './until.ts';

/** Any but root, whom PostgreSQL refuses. */
const USER = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
const HOST = '127.0.0.1';
export const PASSWORD = 'password-of-the-source';

export type ClusterSource = Awaited<ReturnType<typeof startClusterSource>>;

/** The rules of CloudNativePG, and the superuser by the socket. */
const RULES = `local all all trust
hostssl replication streaming_replica all cert
hostssl all all all scram-sha-256
`;

/** As the postInitSQL of our Cluster. */
const ROLES = [
  'create role tsdbadmin login',
  ...adminRights(),
  'create role streaming_replica login replication',
  'grant connect on database postgres to streaming_replica',
  `create role ${READER_ROLE} login bypassrls password 'of the cluster' in role pg_read_all_data`,
  "create role howdah_control login password 'of the cluster'",
  'grant connect on database postgres to howdah_control',
  'grant pg_read_all_stats, pg_signal_backend to howdah_control',
  `create role ${POOLER_ROLE} login password 'of the cluster'`,
  'create role cnpg_metrics_exporter login',
  'grant pg_monitor to cnpg_metrics_exporter',
  'grant connect on database postgres to cnpg_metrics_exporter',
  "alter role postgres password 'of the cluster'",
];

const OPTIONS = { ...USER, cwd: '/', env: { PATH: '/usr/bin:/bin', LANG: 'C.UTF-8' } };

/** Makes the data, and the certificates. @returns settings, and how a copy logs in */
async function makeData(bin: string, directory: string, port: number) {
  const authority = await openCertificateAuthority(join(directory, 'ca'));
  const server = await issueServerCertificate(authority, [HOST]);
  const own = async (name: string, text: string): Promise<string> => {
    const path = join(directory, name);
    await writeFile(path, text, { mode: 0o600 });
    if (USER.uid !== undefined) await chown(path, USER.uid, USER.gid);
    return path;
  };
  const settings = {
    port: String(port),
    listen_addresses: HOST,
    unix_socket_directories: directory,
    wal_level: 'logical',
    wal_keep_size: '512MB',
    ssl: 'on',
    ssl_cert_file: await own('server.crt', server.certificatePem),
    ssl_key_file: await own('server.key', server.keyPem),
    ssl_ca_file: await own('ca.crt', authority.certificatePem),
  };
  if (USER.uid !== undefined) await chown(directory, USER.uid, USER.gid);
  const data = join(directory, 'data');
  const locale = ['--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'];
  const initdb = ['-D', data, '-U', 'postgres', '-A', 'trust', '-N', '-k', '-E', 'UTF8', ...locale];
  await promisify(execFile)(join(bin, 'initdb'), initdb, OPTIONS);
  await writeFile(join(data, 'pg_hba.conf'), RULES);
  const login: ClientCertificate = {
    ...(await issueClientCertificate(authority, 'streaming_replica')),
    user: 'streaming_replica',
    authorityPem: authority.certificatePem,
  };
  return { data, login, settings };
}

async function connect(config: object): Promise<Client> {
  const opened = new Client(config);
  opened.on('error', () => undefined); // it is killed
  await opened.connect();
  return opened;
}

/** A server that is started again and again. @param isReady asks it */
function createProcess(program: string, words: readonly string[], isReady: () => Promise<unknown>) {
  let child: ChildProcess | null = null;
  const start = async (): Promise<void> => {
    const begun = spawn(program, words, { ...OPTIONS, stdio: 'ignore' });
    child = begun;
    await until('PostgreSQL accepts connections or has ended', async () => {
      if (begun.exitCode === null) await isReady();
      return true;
    });
    if (begun.exitCode !== null) throw new Error(`PostgreSQL ended with ${begun.exitCode}`);
  };
  const end = async (name: NodeJS.Signals): Promise<void> => {
    const ending = child;
    child = null;
    if (ending === null || ending.exitCode !== null) return;
    const ended = once(ending, 'exit');
    ending.kill(name);
    await ended;
  };
  return { start, end };
}

/** @param port a free one */
export async function startClusterSource({ bin }: Pick<Installation, 'bin'>, port: number) {
  const directory = await mkdtemp(join(tmpdir(), 'hd-cluster-'));
  const { data, login, settings } = await makeData(bin, directory, port);
  const query = async (sql: string, database = 'postgres'): Promise<readonly object[]> => {
    const session = await connect({ host: directory, port, user: 'postgres', database });
    try {
      return (await session.query<object>(sql)).rows;
    } finally {
      await session.end();
    }
  };
  const words = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const { start, end } = createProcess(join(bin, 'postgres'), ['-D', data, ...words], () =>
    query('select'),
  );
  await start();
  for (const sql of ROLES) await query(sql);
  await query(`alter role tsdbadmin password '${await scramVerifier(PASSWORD)}'`);
  await query('create database tsdb owner tsdbadmin');
  for (const database of ['template1', 'tsdb'])
    for (const sql of [REVOKE_WRITERS, ...POOLER_TEMPLATE_SQL]) await query(sql, database);
  return {
    endpoint: { host: HOST, port },
    login,
    query,
    admin: () =>
      connect({
        host: HOST,
        port,
        user: 'tsdbadmin',
        password: PASSWORD,
        database: 'tsdb',
        ssl: { rejectUnauthorized: false },
      }),
    start,
    /** Shuts it down in order, as a fence does. */
    stop: () => end('SIGINT'),
    kill: () => end('SIGQUIT'),
    append: (name: string, text: string) => appendFile(join(data, name), text),
    /** Whether a copy streams, and has all that is written. */
    isFollowed: async (): Promise<boolean> => {
      const rows = await query(`select from pg_stat_replication
        where application_name = '${COPY_APPLICATION}' and state = 'streaming'
          and replay_lsn = pg_current_wal_lsn()`);
      return rows.length > 0;
    },
    destroy: async (): Promise<void> => {
      await end('SIGQUIT');
      await rm(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
