import { once } from 'node:events';
import { mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { connect, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turnOfLoop } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { sslRequest } from '../../../lib/client-start.ts';
import { issueServerCertificate, makeAuthority } from '../../../lib/tls.ts';
import { freePort, listenAsServer, listenAt, LOOPBACK, makePlan } from './relay-plan.testing.ts';
import type { RelayPlan, RelayState } from './messages.ts';
import { openRelay, type Relay } from './relay.ts';

/** An address for documentation (RFC 5737), which no interface has. */
const NOBODYS_ADDRESS = '192.0.2.1';
const ELSEWHERE = ['192.0.2.0/24'];
const GSS_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30]);
const CANCEL = Buffer.from([0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2]);
const START = Buffer.from('\0\0\0\x17\0\x03\0\0user\0tsdbadmin\0\0', 'latin1');

let root: string;
let server: Server;
let plan: RelayPlan;
let descriptors: { left: number };
/** Ends what a test has begun. */
let endings: (() => unknown)[];

beforeEach(async () => {
  root = await realpath(await mkdtemp(join(tmpdir(), 'howdah-relay-')));
  const listening = await listenAsServer();
  ({ server } = listening);
  plan = await makePlan(root, await freePort(), listening.port);
  descriptors = { left: 100 };
  endings = [];
});
afterEach(async () => {
  vi.useRealTimers();
  for (const end of endings) await end();
  server.close();
  await rm(root, { recursive: true });
});

async function open(state: RelayState, opened = plan): Promise<Relay> {
  const relay = await openRelay(opened, state, descriptors, () => undefined);
  endings.push(() => relay.close());
  return relay;
}

async function connected({ listen: { address, port } } = plan): Promise<Socket> {
  const socket = connect(port, address);
  endings.push(() => socket.destroy());
  await once(socket, 'connect');
  return socket.on('error', () => undefined);
}

async function rest(client: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  client.on('data', (chunk: Buffer) => chunks.push(chunk));
  if (!client.closed) await once(client, 'close');
  return Buffer.concat(chunks).toString('latin1');
}

/** The first bytes that a client reads. */
async function answerTo(client: Socket, request: Buffer): Promise<string> {
  client.write(request);
  const [answer] = await once(client, 'data');
  return String(answer);
}

/** Waits for a change, by turns of the loop: timers may be false. */
async function turnsUntil(condition: () => boolean): Promise<void> {
  while (!condition()) await turnOfLoop();
}

const at = (address: string, port: number): RelayPlan => ({
  ...plan,
  listen: { address, port },
  version: '2',
});

/** Holds a port of another address, where a wildcard address is in its way. */
async function hold(address: string, port: number): Promise<void> {
  const { server: holder } = await listenAt(address, port);
  endings.push(() => holder.close());
}

test.each([
  ['an address that the machine does not have', () => at(NOBODYS_ADDRESS, plan.listen.port)],
  ['a port that another program holds', () => at(LOOPBACK, plan.serverPort)],
  [
    'a wildcard address with a port that another program holds',
    async () => {
      await hold('127.0.0.2', plan.listen.port);
      return at('0.0.0.0', plan.listen.port);
    },
  ],
])('%s leaves a relay where it was', async (_what, next) => {
  const relay = await open('awake');
  const session = await connected();
  expect(await answerTo(session, sslRequest())).toBe('S');
  await expect(relay.change(await next(), 'awake')).rejects.toThrow(/EADDR/);
  expect(relay.view()).toMatchObject({ state: 'awake', version: '1' });
  expect(await answerTo(await connected(), sslRequest())).toBe('S');
  expect(await answerTo(session, Buffer.from('more'))).toBe('more');
});

test('a relay listens at a new place, and no longer at the former one', async () => {
  const relay = await open('awake');
  const next = at(LOOPBACK, await freePort());
  expect(await relay.change(next, 'awake')).toBe(true);
  expect(await answerTo(await connected(next), sslRequest())).toBe('S');
  await expect(connected()).rejects.toThrow('ECONNREFUSED');
  // A wildcard address has the port of the former one.
  const everywhere = at('0.0.0.0', next.listen.port);
  expect(await relay.change(everywhere, 'awake')).toBe(true);
  expect(relay.view().version).toBe('2');
  expect(await answerTo(await connected(at('127.0.0.3', next.listen.port)), sslRequest())).toBe(
    'S',
  );
});

test('a client that comes during a change of place keeps its turn', async () => {
  plan = await makePlan(root, plan.listen.port, plan.serverPort, ['/bin/sleep', '60']);
  const relay = await open('asleep');
  const next = at(LOOPBACK, await freePort());
  const changing = relay.change(next, 'held');
  void relay.wake().catch(() => undefined);
  endings.push(async () => process.kill(await pidOfServer(), 'SIGKILL'));
  expect(await changing).toBe(false);
  // The control plane sees that the plan is not the desired one, once the server is ready.
  expect(relay.view()).toMatchObject({ state: 'waking', version: '' });
});

/** The process that was started in place of a server. */
async function pidOfServer(): Promise<number> {
  const read = () => readFile(plan.launch.paths.pidFile, 'utf8').catch(() => '');
  return vi.waitUntil(async () => Number(await read()), { timeout: 60_000 });
}

test.each([
  ['a session', sslRequest()],
  ['a request to cancel', CANCEL],
])(
  'a client that connected before its network was revoked has no use of it: %s',
  async (_, bytes) => {
    const relay = await open('awake');
    let reached = 0;
    server.on('connection', () => (reached += 1));
    const client = await connected();
    // The relay has accepted it.
    expect(await answerTo(client, GSS_REQUEST)).toBe('N');
    expect(await relay.change({ ...plan, allowedNetworks: ELSEWHERE }, 'awake')).toBe(true);
    client.write(bytes);
    expect(await rest(client)).toBe('');
    expect(reached).toBe(0);
  },
);

test('a relay that is closed ends clients that have not begun a session', async () => {
  // The client has all the time that it wants.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const relay = await open('held');
  const client = await connected();
  expect(await answerTo(client, GSS_REQUEST)).toBe('N');
  relay.close();
  expect(await rest(client)).toBe('');
});

test('a wake counts as use: what follows it is not heard', async () => {
  const relay = await open('awake');
  const clock = vi.spyOn(performance, 'now');
  endings.push(() => clock.mockRestore());
  clock.mockReturnValue(performance.now() + 10_000);
  expect(relay.view().idleMs).toBeGreaterThan(5000);
  await relay.wake();
  expect(relay.view().idleMs).toBe(0);
  expect(relay.hold(5000)).toBeNull();
});

test('the clients of one service leave places for those of others', async () => {
  descriptors.left = 42;
  await open('awake');
  const other = await makePlan(root, await freePort(), plan.serverPort);
  await open('awake', other);
  const crowd = await Promise.all(Array.from({ length: 30 }, () => connected()));
  const ends = await Promise.all(
    crowd.map(async (client) => {
      client.write(sslRequest());
      return Promise.race([
        once(client, 'data').then(
          () => 'served',
          () => 'refused',
        ),
        once(client, 'close').then(() => 'refused'),
      ]);
    }),
  );
  expect(ends.filter((end) => end === 'served')).toHaveLength(11);
  expect(await answerTo(await connected(other), sslRequest())).toBe('S');
});

test('clients without descriptors are refused, and end no session', async () => {
  descriptors.left = 5;
  await open('awake');
  const [first, second] = [await connected(), await connected()];
  expect(await answerTo(first, sslRequest())).toBe('S');
  expect(await answerTo(second, sslRequest())).toBe('S');
  const third = await connected();
  third.write(sslRequest());
  expect(await rest(third)).toBe('');
  expect(await answerTo(first, Buffer.from('more'))).toBe('more');
  first.destroy();
  await turnsUntil(() => descriptors.left === 2);
  expect(await answerTo(await connected(), sslRequest())).toBe('S');
});

test('an unexpected error at a client ends that client only', async () => {
  const relay = await open('awake');
  const session = await connected();
  expect(await answerTo(session, sslRequest())).toBe('S');
  server.close();
  // Where a file belongs, a path cannot be.
  const paths = { ...plan.launch.paths, data: '\0' };
  const launch = { ...plan.launch, paths };
  expect(await relay.change({ ...plan, launch, serverPort: await freePort() }, 'awake')).toBe(true);
  const client = await connected();
  client.write(sslRequest());
  expect(await rest(client)).toBe('');
  expect(await answerTo(session, Buffer.from('more'))).toBe('more');
});

const SECRET = 'could not open /home/operator/secret';

test('a client without a password learns that its server did not start, but not why', async () => {
  const command = ['/bin/sh', '-c', `echo 'FATAL:  ${SECRET}' >&2; exit 1`];
  plan = await makePlan(root, plan.listen.port, plan.serverPort, command);
  const authority = await makeAuthority();
  const pair = await issueServerCertificate(authority, ['localhost']);
  await writeFile(join(plan.launch.paths.config, 'server.crt'), pair.certificatePem);
  await writeFile(join(plan.launch.paths.config, 'server.key'), pair.keyPem);
  const relay = await open('asleep');
  (await connected()).write(sslRequest());
  await vi.waitUntil(() => relay.view().state === 'held', { timeout: 60_000 });
  expect(relay.view().problem).toContain(SECRET);
  // Time passes for the second client, which waits for the control plane.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const client = await connected();
  client.write(sslRequest());
  await turnsUntil(() => relay.view().clients === 2);
  const asked = expect(relay.wake()).rejects.toThrow(/^it did not start$/);
  vi.advanceTimersByTime(60_000);
  await asked;
  const [answer] = await once(client, 'data');
  expect(String(answer)).toBe('S');
  const tls = connectTls({ socket: client, ca: authority.certificatePem, servername: 'localhost' });
  await once(tls, 'secureConnect');
  tls.write(START);
  const said = await rest(tls);
  expect(said).toContain('this service slept, and it did not start');
  expect(said).not.toMatch(/secret|FATAL: /);
});
