/** The TLS gateway as it is built, before a real PostgreSQL. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { promisify } from 'node:util';
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  NAME,
  OTHER_NAME,
  startGateway,
  startServer,
  type Gateway,
  type Server,
} from './gateway-cloud.ts';
import { untilExpected } from './until.ts';

let server: Server;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.close());

/** Runs a statement with psql. @returns what it prints, or the error */
async function psql(port: number, settings: Record<string, string | number> = {}): Promise<string> {
  const facts = {
    host: NAME,
    hostaddr: '127.0.0.1',
    port,
    dbname: 'postgres',
    user: 'tsdbadmin',
    sslmode: 'verify-full',
    sslrootcert: server.authorityPath,
    ...settings,
  };
  const words = Object.entries(facts).map(([name, value]) => `${name}=${value}`);
  const sql = 'select ssl from pg_stat_ssl where pid = pg_backend_pid()';
  const run = promisify(execFile)('psql', [words.join(' '), '-XAtc', sql]);
  return run.then(
    ({ stdout }) => stdout.trim(),
    (error: unknown) => String(Reflect.get(Object(error), 'stderr')),
  );
}

async function open(port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** Sends bytes. @returns all that is answered until the connection is closed */
async function send(port: number, ...bytes: readonly number[]): Promise<Buffer> {
  const socket = await open(port);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.write(Buffer.from(bytes));
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  return Buffer.concat(chunks);
}

/** Not by `once`, which an error of the session would end. */
const endOf = (client: Client): Promise<void> =>
  new Promise((resolve) => client.once('end', () => resolve()));

const SSL = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS = [0, 0, 0, 8, 4, 210, 22, 48];
const CANCEL = [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2];

/** A start without TLS. */
const NO_TLS = [0, 0, 0, 9, 0, 3, 0, 0, 0];
const REFUSED = 20;

const refused = (reason: string): string => `howdah_gateway_refused_total{reason="${reason}"}`;

describe('a gateway', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await startGateway(server);
  });
  afterAll(() => gateway?.close());

  test('connects clients by their names, with the certificate of the server', async () => {
    expect(await psql(gateway.port)).toBe('t');
    expect(await psql(gateway.port, { host: NAME.toUpperCase() })).toBe('t');
    expect(await gateway.get('/health')).toBe('ok\n');
  });

  test('connects clients that begin with TLS', async () => {
    const client = await gateway.session({ sslnegotiation: 'direct' });
    const { rows } = await client.query('select ssl from pg_stat_ssl where pid = pg_backend_pid()');
    expect(rows).toEqual([{ ssl: true }]);
    await client.end();
  });

  test.each([
    ['without TLS', { sslmode: 'disable' }, /TLS is required: connect with sslmode=require/],
    ['of a name that nobody has', { host: `0000000000${NAME.slice(10)}` }, /unrecognized name/],
    ['of a name of another form', { host: `x.${NAME}` }, /unrecognized name/],
    ['without a name', { sslmode: 'require', host: '127.0.0.1' }, /unrecognized name/],
  ])('refuses clients %s, and says why', async (_what, settings, message) => {
    expect(await psql(gateway.port, settings)).toMatch(message);
  });

  test('closes what it cannot pass on', async () => {
    expect(String(await send(gateway.port, ...CANCEL))).toBe('');
    expect(String(await send(gateway.port, ...Buffer.from('GET / HTTP/1.1\r\n\r\n')))).toBe('');
    expect(String(await send(gateway.port, ...GSS, ...CANCEL))).toBe('N');
    expect(String(await send(gateway.port, ...GSS, ...SSL, 0))).toBe('NS');
    expect(String(await send(gateway.port, ...GSS, ...GSS, ...GSS))).toBe('NN');
    const long = [22, 3, 1, 0x40, 0, 1, 0, 0x40, 1];
    expect(String(await send(gateway.port, ...SSL, ...long))).toBe('S');
    await untilExpected('no handshake is under way', async () =>
      expect(await gateway.metric('howdah_gateway_handshakes')).toBe(0),
    );
    expect(await gateway.metric(refused('cancel'))).toBe(2);
  });

  test('has no sessions left of clients that were idle', async () => {
    const clients = await Promise.all(Array.from({ length: 200 }, () => gateway.session()));
    expect(await gateway.metric('howdah_gateway_sessions')).toBe(200);
    expect(await gateway.metric('howdah_gateway_handshakes')).toBe(0);
    const half = clients.slice(100);
    for (const client of half) client.connection.stream.destroy();
    await Promise.all(clients.slice(0, 100).map((client) => client.end()));
    await untilExpected('no session is left', async () =>
      expect(await gateway.metric('howdah_gateway_sessions')).toBe(0),
    );
  });

  test('reads no more than a client takes', async () => {
    const memory = async (): Promise<number> =>
      Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${gateway.pid}/status`, 'utf8'))?.[1]);
    const client = await gateway.session();
    const watch = server.connect();
    await watch.connect();
    const before = await memory();
    const { rows } = await client.query('select pg_backend_pid() as pid');
    const result = client.query(`select repeat('x', 1000000) from generate_series(1, 300)`);
    result.catch(() => undefined);
    client.connection.stream.pause();
    const waits = async (): Promise<string> => {
      const sql = 'select wait_event from pg_stat_activity where pid = $1';
      return (await watch.query(sql, [rows[0].pid])).rows[0]?.wait_event;
    };
    await untilExpected('the server waits for the client', async () =>
      expect(await waits()).toBe('ClientWrite'),
    );
    expect((await memory()) - before).toBeLessThan(50_000);
    client.connection.stream.resume();
    expect((await result).rowCount).toBe(300);
    await client.end();
    await watch.end();
  });

  test('ends sessions with their server, and has others when it is back', async () => {
    const clients = await Promise.all([gateway.session(), gateway.session()]);
    const ended = clients.map(endOf);
    await server.stop('SIGKILL');
    await Promise.all(ended);
    await untilExpected('no session is left', async () =>
      expect(await gateway.metric('howdah_gateway_sessions')).toBe(0),
    );
    expect(await psql(gateway.port)).toMatch(/internal error/);
    await server.start();
    expect(await psql(gateway.port)).toBe('t');
  });
});

describe('limits', () => {
  let gateway: Gateway;
  beforeEach(async () => {
    const places = ['--sessions', '8', '--handshakes', '8'];
    gateway = await startGateway(server, ...places, '--drain', '0');
  });
  afterEach(() => gateway?.close());

  test('a service has its part of the sessions', async () => {
    const client = await gateway.session();
    expect(await psql(gateway.port)).toMatch(/access denied/);
    expect(await gateway.metric(refused('sessions_of_service'))).toBe(1);
    await client.end();
    await untilExpected('the ended session is no longer counted', async () =>
      expect(await psql(gateway.port)).toBe('t'),
    );
  });

  test('a project has its part of the sessions', async () => {
    const small = await startGateway(server, '--sessions', '4');
    const client = await small.session();
    expect(await psql(small.port, { host: OTHER_NAME })).toMatch(/access denied/);
    expect(await small.metric(refused('sessions_of_project'))).toBe(1);
    await client.end();
    await untilExpected('the ended session is no longer counted', async () =>
      expect(await psql(small.port, { host: OTHER_NAME })).toBe('t'),
    );
    await small.close();
  });

  test('an address has its part of the handshakes, and gets it back', async () => {
    const idle = await Promise.all([open(gateway.port), open(gateway.port)]);
    await untilExpected('both handshakes are counted', async () =>
      expect(await gateway.metric('howdah_gateway_handshakes')).toBe(2),
    );
    expect(await send(gateway.port, ...SSL)).toHaveLength(0);
    expect(await gateway.metric(refused('handshakes_of_address'))).toBe(1);
    for (const socket of idle) socket.destroy();
    await untilExpected('the handshakes of the address are free again', async () =>
      expect(await psql(gateway.port)).toBe('t'),
    );
    await untilExpected('no handshake is under way', async () =>
      expect(await gateway.metric('howdah_gateway_handshakes')).toBe(0),
    );
  });

  test('after SIGTERM sessions go on, and no more begin', async () => {
    for (let number = 0; number < REFUSED; number += 1)
      expect(await send(gateway.port, ...NO_TLS)).not.toHaveLength(0);
    const client = await gateway.session();
    gateway.signal('SIGTERM');
    await untilExpected('the gateway ends', async () =>
      expect(await gateway.get('/health')).toBe('ending\n'),
    );
    expect(await psql(gateway.port)).toMatch(/refused/);
    expect((await client.query('select 1 as n')).rows).toEqual([{ n: 1 }]);
    await client.end();
    expect(await gateway.ended()).toBe(0);
    const logged = gateway.lines.filter((line) => line.includes('"no_tls"'));
    const clients = logged.map((line) => Number(JSON.parse(line).clients));
    expect(clients.reduce((sum, count) => sum + count, 0)).toBe(REFUSED);
    // Each reason has a line in ten seconds.
    expect(logged.length).toBeLessThan(REFUSED);
    expect(gateway.lines.join('\n')).not.toContain(NAME);
  });

  test('after SIGTERM clients are accepted until load balancers know of it', async () => {
    const slow = await startGateway(server, '--drain', '600');
    slow.signal('SIGTERM');
    await untilExpected('the gateway ends', async () =>
      expect(await slow.get('/health')).toBe('ending\n'),
    );
    expect(await psql(slow.port)).toBe('t');
    await slow.close();
  });

  test('an error of accept ends nothing', async () => {
    const client = await gateway.session();
    gateway.signal('SIGUSR2');
    const notAccepted = () => gateway.metric(refused('not_accepted'));
    await untilExpected('two accepts have failed', async () => expect(await notAccepted()).toBe(2));
    expect((await client.query('select 1 as n')).rows).toEqual([{ n: 1 }]);
    await client.end();
    await untilExpected('the gateway accepts connections', async () =>
      expect(await psql(gateway.port)).toBe('t'),
    );
  });

  test('after the time of grace, sessions end', async () => {
    const short = await startGateway(server, '--drain', '0', '--grace', '0');
    const client = await short.session();
    const ended = endOf(client);
    short.signal('SIGTERM');
    await ended;
    expect(await short.ended()).toBe(0);
  });
});
