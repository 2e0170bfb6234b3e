/**
 * One relay: the listener of a service that may fall asleep. It passes bytes on between clients and
 * their server, and reads no more of them than distinguishes a client of PostgreSQL from anything
 * else. While the server is not there, clients wait; the first one has it started.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createSecureContext } from 'node:tls';
import { messageOf } from '@howdah/contract/thrown';
import { readChunk, readStart, REQUEST_BYTES, startError } from '../../../lib/client-start.ts';
import { pass, within } from '../../../lib/sockets.ts';
import { answerClient, CANNOT_CONNECT_NOW } from '../network/client-notice.ts';
import { isErrno, readOrNull } from '../../../lib/processes.ts';
import { readFile } from '../host/root-files.ts';
import { isAllowed } from '../network/listener.ts';
import { findServer, launchPlanned, waitUntilReady, whyItEnded } from '../postgres/server.ts';
import { DESCRIPTORS_OF_CLIENT, type Descriptors } from './descriptors.ts';
import type { RelayClient, RelayPlan, RelayState, RelayView } from './messages.ts';

/** Until a client has said what it wants. */
const START_MS = 10_000;
/** For how long clients wait for their server: poolers and libraries give up no sooner. */
const WAIT_MS = 30_000;
/** A server that was stopped in order is ready at once; one that was killed recovers. */
const WAKE_MS = 60_000;
const CONNECT_MS = 10_000;
/** Before a server that is not there is looked for again. */
const AGAIN_MS = 100;
/** For what is on its way when one side of a session has ended. */
const END_MS = 10_000;
const KEEPALIVE_MS = 30_000;
/** As many as a gateway takes. */
const MOST_CLIENTS = 4096;
/** Requests for an encryption: one of each kind, as libpq sends them, in one or two segments. */
const MOST_READS = 8;
const LOOPBACK = '127.0.0.1';

type Open = {
  plan: RelayPlan;
  state: RelayState;
  listener: Server;
  /** How often its state was set. */
  turns: number;
  /** All connections of clients; the networks of all are allowed. */
  readonly sockets: Set<Socket>;
  readonly descriptors: Descriptors;
  /** Those that have begun a session, with the port by which the server knows it. */
  readonly clients: Map<Socket, number | null>;
  /** When a client has last sent something, or a wake was asked for; the clock never jumps. */
  heardMs: number;
  /** Why the server was not started the last time; null: it was. */
  problem: Problem | null;
  /** Called when the state has changed. */
  readonly waiting: Set<() => void>;
  /** Reports a change that the control plane did not ask for. */
  readonly report: () => void;
};

/** `forClients` is read by anybody on the network, `reason` by operators only. */
type Problem = Readonly<{ forClients: string; reason: string }>;

export type Relay = Readonly<{
  view: () => RelayView;
  /**
   * Sessions that are still allowed go on.
   *
   * @returns whether it was changed; false: its state has changed meanwhile
   * @throws Error when the new place cannot be listened on: the relay is as it was
   */
  change: (plan: RelayPlan, state: RelayState) => Promise<boolean>;
  clients: () => RelayClient[];
  /** Has clients wait, unless one is there or was within this time. @returns the turn, or null */
  hold: (idleMs: number) => number | null;
  /** The server has stopped: clients that came meanwhile have it started again. */
  sleep: (turn: number) => boolean;
  /** Has the server started. @throws Error when it is not */
  wake: () => Promise<void>;
  close: () => void;
}>;

/** @throws Error when its port cannot be listened on */
export async function openRelay(
  plan: RelayPlan,
  state: RelayState,
  descriptors: Descriptors,
  report: () => void,
): Promise<Relay> {
  const serve = (client: Socket): void => accept(relay, client);
  const relay: Open = {
    plan,
    state,
    listener: await listen(plan, serve),
    turns: 0,
    sockets: new Set(),
    descriptors,
    clients: new Map(),
    heardMs: performance.now(),
    problem: null,
    waiting: new Set(),
    report,
  };
  descriptors.left -= 1;
  return {
    view: () => viewOf(relay),
    change: async (next, to) => {
      const at = relay.turns;
      if (!isAtPlace(relay, next)) await move(relay, next, serve);
      // A client may have had the server started meanwhile, by the plan that was.
      if (relay.turns !== at) return false;
      relay.plan = next;
      for (const client of relay.sockets) if (!mayEnter(relay, client)) client.destroy();
      if (to === 'awake') relay.problem = null;
      turn(relay, to);
      return true;
    },
    clients: () =>
      [...relay.clients].flatMap(([client, serverPort]) =>
        serverPort === null ? [] : [{ address: addressOf(client) ?? '', serverPort }],
      ),
    hold: (idleMs) => {
      const isIdle = relay.clients.size === 0 && performance.now() - relay.heardMs >= idleMs;
      if (relay.state !== 'awake' || !isIdle) return null;
      turn(relay, 'held');
      return relay.turns;
    },
    sleep: (at) => {
      if (relay.turns !== at) return false;
      turn(relay, 'asleep');
      if (relay.clients.size > 0) startServer(relay);
      return true;
    },
    wake: async () => {
      // The session that follows goes by the server's own socket: nothing of it is heard here.
      relay.heardMs = performance.now();
      if (!(await untilAwake(relay, WAIT_MS, new AbortController().signal)))
        throw new Error(relay.problem?.forClients ?? SLOW);
      relay.heardMs = performance.now();
    },
    close: () => {
      relay.listener.close();
      descriptors.left += 1;
      for (const client of relay.sockets) client.destroy();
      turn(relay, 'held');
    },
  };
}

const viewOf = (relay: Open): RelayView => ({
  id: relay.plan.id,
  state: relay.state,
  version: relay.listener.listening ? relay.plan.version : NOWHERE,
  clients: relay.clients.size,
  idleMs: performance.now() - relay.heardMs,
  problem: relay.problem?.reason ?? null,
});

/** The version of a plan that is not complied with: the control plane changes the relay again. */
const NOWHERE = '';

const isAtPlace = ({ plan, listener }: Open, { listen: { address, port } }: RelayPlan): boolean =>
  plan.listen.address === address && plan.listen.port === port && listener.listening;

/** Has a relay listen at the place of another plan. @throws Error when it cannot */
async function move(relay: Open, next: RelayPlan, serve: Serve): Promise<void> {
  const { plan, listener: former } = relay;
  try {
    relay.listener = await listen(next, serve);
  } catch (error) {
    // A wildcard address overlaps with others: the former place is closed first.
    const mayOverlap = plan.listen.port === next.listen.port && former.listening;
    if (!mayOverlap || !isErrno(error, 'EADDRINUSE')) throw error;
    former.close();
    relay.listener = await listen(next, serve).catch(async (why: unknown) => {
      relay.listener = await listen(plan, serve);
      throw why;
    });
  }
  former.close();
  relay.plan = { ...plan, listen: next.listen, version: NOWHERE };
}

type Serve = (client: Socket) => void;

async function listen({ listen: { address, port } }: RelayPlan, serve: Serve): Promise<Server> {
  const options = { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS };
  const server = createServer(options, serve);
  server.maxConnections = MOST_CLIENTS;
  server.listen({ host: address, port });
  await once(server, 'listening');
  // A lack of descriptors refuses one client, and must not end the sessions of all.
  return server.on('error', () => undefined);
}

function turn(relay: Open, state: RelayState): void {
  relay.turns += 1;
  relay.state = state;
  for (const look of relay.waiting) look();
}

/** A listener for both versions of IP has those of IPv4 within those of IPv6. */
const addressOf = ({ remoteAddress }: Socket): string | undefined =>
  remoteAddress?.replace(/^::ffff:(?=\d+\.)/, '');

function mayEnter({ plan: { allowedNetworks } }: Open, client: Socket): boolean {
  if (allowedNetworks === null) return true;
  const address = addressOf(client);
  return address !== undefined && isAllowed(allowedNetworks, address);
}

// The server.

/** Has a server that is asleep started, and clients connected to it once it is ready. */
function startServer(relay: Open): void {
  if (relay.state !== 'asleep') return;
  turn(relay, 'waking');
  // A query of the API has the time as well, without a client.
  relay.heardMs = performance.now();
  relay.report();
  void wakeUp(relay);
}

/** Never fails: the control plane starts a server that is not ready in time. */
async function wakeUp(relay: Open): Promise<void> {
  const problem = await startPlanned(relay.plan);
  // The control plane may have closed or changed the relay meanwhile.
  if (relay.state !== 'waking') return;
  relay.problem = problem;
  turn(relay, problem === null ? 'awake' : 'held');
  relay.report();
}

/** @returns why the server is not ready; null: it is */
async function startPlanned({ launch }: RelayPlan): Promise<Problem | null> {
  const begunMs = Date.now();
  const failed = (text: string): Problem => {
    const why = text.replaceAll(`${launch.paths.root}/`, '');
    return { forClients: 'it did not start', reason: `it did not start: ${why}` };
  };
  try {
    // An activator that was killed may have begun this start: one server runs on its data.
    if ((await findServer(launch.paths)) === null) await launchPlanned(launch);
    switch (await waitUntilReady(launch.paths, WAKE_MS)) {
      case 'ready':
        return null;
      case 'starting':
        return { forClients: RECOVERS, reason: RECOVERS };
      case 'ended':
        // The control plane removes the pid file of a server that it has stopped.
        if ((await readOrNull(launch.paths.pidFile)) === null)
          return failed('it was stopped, or its pid file could not be written');
        return failed(await whyItEnded(launch.paths, begunMs));
    }
  } catch (error) {
    return failed(messageOf(error));
  }
}

/** @returns whether the server is there in time, and the client too */
async function untilAwake(relay: Open, limitMs: number, signal: AbortSignal): Promise<boolean> {
  const endMs = performance.now() + limitMs;
  for (;;) {
    if (signal.aborted) return false;
    startServer(relay);
    if (relay.state === 'awake') return true;
    const restMs = endMs - performance.now();
    if (restMs <= 0) return false;
    await changeWithin(relay, restMs, signal);
  }
}

async function changeWithin(relay: Open, limitMs: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(end, limitMs);
    relay.waiting.add(end);
    signal.addEventListener('abort', end);
    function end(): void {
      clearTimeout(timer);
      relay.waiting.delete(end);
      signal.removeEventListener('abort', end);
      resolve();
    }
  });
}

// The clients.

const NO_TLS = 'TLS is required: connect with sslmode=require or sslmode=verify-full';
const SLOW = 'its server is not ready yet';
const RECOVERS = 'it still recovers from its WAL';

/** Serves a client, if descriptors are left for it. */
function accept(relay: Open, client: Socket): void {
  client.on('error', () => undefined); // its end follows
  const { descriptors, sockets } = relay;
  // The clients of one service never take more than half: other services have clients too.
  if (descriptors.left < Math.max(DESCRIPTORS_OF_CLIENT, sockets.size * DESCRIPTORS_OF_CLIENT))
    return void client.destroy();
  descriptors.left -= DESCRIPTORS_OF_CLIENT;
  sockets.add(client);
  client.once('close', () => {
    sockets.delete(client);
    descriptors.left += DESCRIPTORS_OF_CLIENT;
  });
  // An unexpected error at one client must not end the sessions of all.
  serveClient(relay, client).catch(() => client.destroy());
}

async function serveClient(relay: Open, client: Socket): Promise<void> {
  if (!mayEnter(relay, client)) return void client.destroy();
  const begun = await within([client], START_MS, (signal) => readRequest(client, signal));
  switch (begun?.kind) {
    case undefined:
      return void client.destroy();
    case 'no_tls':
      client.write(startError('28000', NO_TLS));
      return client.destroySoon();
    case 'cancel':
      // Nothing runs in a server that sleeps, and a cancel must not wake it.
      if (relay.state === 'awake') await connectTo(relay, client, begun.bytes);
      else client.destroy();
      return;
    case 'session':
      return serveSession(relay, client, begun.bytes);
  }
}

async function serveSession(relay: Open, client: Socket, bytes: Buffer): Promise<void> {
  relay.clients.set(client, null);
  client.once('close', () => relay.clients.delete(client));
  relay.heardMs = performance.now();
  const ended = new AbortController();
  const end = (): void => ended.abort();
  client.once('close', end);
  const isAwake = await untilAwake(relay, WAIT_MS, ended.signal);
  client.off('close', end);
  if (client.destroyed) return;
  if (!isAwake) return refuse(relay, client, bytes);
  await connectTo(relay, client, bytes);
}

/** Connects a client to its server, which answers what was read of it already. */
async function connectTo(relay: Open, client: Socket, bytes: Buffer): Promise<void> {
  const server = await openServer(relay, client);
  if (server === null) return void client.destroy();
  if (relay.clients.has(client)) relay.clients.set(client, server.localPort ?? null);
  server.setKeepAlive(true, KEEPALIVE_MS);
  server.write(bytes);
  client.on('data', () => {
    relay.heardMs = performance.now();
  });
  pass(client, server, END_MS);
}

/** @returns null: the server cannot be reached, or the client is gone */
async function openServer(relay: Open, client: Socket): Promise<Socket | null> {
  const { serverPort: port, launch } = relay.plan;
  const endMs = performance.now() + WAIT_MS;
  while (!client.destroyed && performance.now() < endMs) {
    const server = connect({ host: LOOPBACK, port, noDelay: true });
    server.on('error', () => undefined); // its end follows
    const isConnected = await within([client, server], CONNECT_MS, async (signal) => {
      await once(server, 'connect', { signal });
      return true;
    });
    if (isConnected !== null) return server;
    server.destroy();
    // A server that has died is started again by the control plane.
    const state = await waitUntilReady(launch.paths, endMs - performance.now());
    if (state !== 'ready') await sleep(AGAIN_MS);
  }
  return null;
}

/**
 * Answers a client by TLS. Anybody on the network can be one: the server log, and what an operator
 * can do, are not in the answer.
 */
async function refuse({ plan, problem }: Open, client: Socket, bytes: Buffer): Promise<void> {
  const { config } = plan.launch.paths;
  try {
    const [cert, key] = await Promise.all(
      ['server.crt', 'server.key'].map((name) => readFile(join(config, name))),
    );
    const why = problem?.forClients ?? SLOW;
    const error = startError(CANNOT_CONNECT_NOW, `this service slept, and ${why}`);
    await answerClient(client, { error, secure: createSecureContext({ cert, key }) }, bytes);
  } catch {
    client.destroy();
  }
}

type Begun = Readonly<{ kind: 'session' | 'cancel'; bytes: Buffer }> | Readonly<{ kind: 'no_tls' }>;

/** Reads what a client wants. @returns null: nothing of PostgreSQL @throws by the signal */
async function readRequest(client: Socket, signal: AbortSignal): Promise<Begun | null> {
  let bytes: Buffer = Buffer.alloc(0);
  for (let reads = 0; reads < MOST_READS;) {
    const start = readStart(bytes);
    switch (start.kind) {
      case 'ssl':
      case 'tls':
        return { kind: 'session', bytes };
      case 'gss':
        client.write('N');
        bytes = bytes.subarray(REQUEST_BYTES);
        reads += 1;
        break;
      case 'more': {
        const chunk = await readChunk(client, signal);
        if (chunk === null) return null;
        bytes = Buffer.concat([bytes, chunk]);
        reads += 1;
        break;
      }
      case 'refused':
        if (start.why === 'not_postgresql') return null;
        return start.why === 'cancel' ? { kind: 'cancel', bytes } : { kind: 'no_tls' };
    }
  }
  return null;
}
