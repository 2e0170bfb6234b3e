import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { sslRequest } from '../../../lib/client-start.ts';
import { signal } from '../../../lib/processes.ts';
import { freePort, listenAsServer, LOOPBACK, makePlan } from './relay-plan.testing.ts';
import { eachLine, SOCKET_NAME, type Answer, type RelayState, type Request } from './messages.ts';

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));

let directory: string;
/** The activator as one file, which starts faster than its sources. */
let program: string;
beforeAll(async () => {
  directory = await realpath(await mkdtemp(join(tmpdir(), 'howdah-activator-')));
  program = join(directory, 'activator.mjs');
  const options = { bundle: true, platform: 'node', format: 'esm', logLevel: 'error' } as const;
  await build({ ...options, entryPoints: [MAIN], outfile: program });
});
afterAll(() => rm(directory, { recursive: true }));

let root: string;
let endings: (() => unknown)[];
beforeEach(async () => {
  root = await realpath(await mkdtemp(join(directory, 'home-')));
  endings = [];
});
afterEach(async () => {
  for (const end of endings.toReversed()) await end();
  await rm(root, { recursive: true });
});

/** Starts an activator in the directory. @param descriptors its limit */
function startActivator(descriptors = 1024): ChildProcess {
  const child = spawn(
    '/bin/sh',
    ['-c', `ulimit -n ${descriptors}; exec "$@"`, 'sh', process.execPath, program],
    { cwd: root, stdio: 'ignore' },
  );
  endings.push(() => child.kill('SIGKILL'));
  return child;
}

/** A link as the control plane has it. */
async function link(): Promise<{
  socket: Socket;
  ask: (request: Request) => Promise<Answer>;
}> {
  const socket = await vi.waitUntil(
    async () => {
      const trying = connect(join(root, SOCKET_NAME)).on('error', () => undefined);
      return once(trying, 'connect').then(
        () => trying,
        () => null,
      );
    },
    { timeout: 60_000, interval: 20 },
  );
  endings.push(() => socket.destroy());
  let asked = 0;
  const waiting = new Map<number, (answer: Answer) => void>();
  eachLine(socket, (line) => {
    const answer: Answer = JSON.parse(line);
    if ('n' in answer) waiting.get(answer.n)?.(answer);
  });
  return {
    socket,
    ask: (request) =>
      new Promise((resolve, reject) => {
        asked += 1;
        waiting.set(asked, resolve);
        socket.once('close', () => reject(new Error('the activator has ended')));
        socket.write(`${JSON.stringify({ ...request, n: asked })}\n`);
      }),
  };
}

/** Opens a relay, and returns its port. */
async function open(
  ask: (request: Request) => Promise<Answer>,
  state: RelayState,
  command?: readonly string[],
): Promise<number> {
  const { server, port: serverPort } = await listenAsServer();
  endings.push(() => server.close());
  const port = await freePort();
  const plan = await makePlan(join(root, 'service'), port, serverPort, command);
  expect(await ask({ op: 'open', plan, state, from: null })).toMatchObject({
    value: { done: true },
  });
  return port;
}

/** The process that was started in place of a server. */
const pidOfServer = (): Promise<number> =>
  vi.waitUntil(
    async () => Number(await readFile(join(root, 'service', 'pid'), 'utf8').catch(() => '')),
    { timeout: 60_000 },
  );

test('a control plane that is killed within a line ends no session', async () => {
  startActivator();
  const [killed, other] = [await link(), await link()];
  killed.socket.end('{"n":1,"op":');
  await once(killed.socket, 'close');
  expect(await other.ask({ op: 'list' })).toMatchObject({ value: { relays: [] } });
});

test('a second activator ends, and leaves the relays of the first in reach', async () => {
  startActivator();
  const first = await link();
  await open(first.ask, 'held');
  const second = startActivator();
  const [code] = await once(second, 'exit');
  expect(code).toBe(1);
  const { ask } = await link();
  expect(await ask({ op: 'list' })).toMatchObject({ value: { relays: [{ state: 'held' }] } });
});

test('an activator takes the socket of one that was killed', async () => {
  const killed = startActivator();
  await link();
  killed.kill('SIGKILL');
  await once(killed, 'exit');
  startActivator();
  expect(await (await link()).ask({ op: 'list' })).toMatchObject({ value: { relays: [] } });
});

test('a relay is not closed while a client has its server started', async () => {
  startActivator();
  const { ask } = await link();
  await open(ask, 'asleep', ['/bin/sleep', '60']);
  const id = 'abcdefghij';
  void ask({ op: 'wake', id }).catch(() => undefined);
  expect(await ask({ op: 'close', id })).toMatchObject({ value: { done: false } });
  expect(await ask({ op: 'list' })).toMatchObject({ value: { relays: [{ state: 'waking' }] } });
  signal(await pidOfServer(), 'SIGKILL');
  await vi.waitUntil(async () => JSON.stringify(await ask({ op: 'close', id })).includes('true'), {
    timeout: 60_000,
    interval: 50,
  });
  // A service that has none is not in the way.
  expect(await ask({ op: 'close', id })).toMatchObject({ value: { done: true } });
});

test('without descriptors for more clients, sessions go on', async () => {
  startActivator(128);
  const { ask } = await link();
  const port = await open(ask, 'awake');
  const session = connect(port, LOOPBACK);
  endings.push(() => session.destroy());
  session.write(sslRequest());
  expect(String((await once(session, 'data'))[0])).toBe('S');
  const clients = Array.from({ length: 200 }, () =>
    connect(port, LOOPBACK).on('error', () => undefined),
  );
  endings.push(() => clients.forEach((client) => client.destroy()));
  // Each is refused, or reaches the server.
  await Promise.all(
    clients.map(async (client) => {
      client.write(sslRequest());
      await Promise.race([once(client, 'data'), once(client, 'close')]).catch(() => undefined);
    }),
  );
  session.write('more');
  expect(String((await once(session, 'data'))[0])).toBe('more');
  expect(await ask({ op: 'see', id: 'abcdefghij' })).toMatchObject({
    value: { relays: [{ state: 'awake' }] },
  });
});
