/**
 * The activator: a small process of an installation that holds the listeners of services that may
 * fall asleep. It outlives the control plane, and starts servers without it
 * (docs/decisions/0109-sleep-and-wake.md).
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '@howdah/contract/thrown';
import { isErrno } from '../../../lib/processes.ts';
import { rm } from '../host/root-files.ts';
import { ownDescriptors, type Descriptors } from './descriptors.ts';
import { openRelay, type Relay } from './relay.ts';
import { eachLine, send, type Request, type Value } from './messages.ts';

type Activator = Readonly<{
  relays: Map<string, Relay>;
  descriptors: Descriptors;
  report: (id: string) => void;
}>;

/**
 * @param path of the Unix socket of the engine, in a directory that nobody else can enter
 * @throws Error when another activator answers there
 */
export async function runActivator(path: string): Promise<void> {
  const engines = new Set<Socket>();
  const activator: Activator = {
    relays: new Map(),
    descriptors: ownDescriptors(),
    report: (id) => engines.forEach((engine) => send(engine, { changed: id })),
  };
  const server = createServer((engine) => {
    engines.add(engine);
    engine.on('error', () => undefined).once('close', () => engines.delete(engine));
    // One after the other: an open that waits for its port is followed by what comes after it.
    let before: Promise<void> = Promise.resolve();
    eachLine(engine, (line) => {
      const request: Request & { n: number } = JSON.parse(line);
      const answer = async (): Promise<void> => {
        try {
          send(engine, { n: request.n, value: await perform(activator, request) });
        } catch (error) {
          const text = messageOf(error);
          send(engine, { n: request.n, error: text });
        }
      };
      // A wake takes as long as its server, and keeps no other request waiting.
      if (request.op === 'wake') void answer();
      else before = before.then(answer);
    });
  });
  await listenAlone(server, path);
  // A lack of descriptors refuses one engine, and must not end the sessions of all services.
  server.on('error', () => undefined);
}

/**
 * Takes the socket of an activator that has ended, but not that of one that runs: its relays would
 * be out of reach of the control plane.
 */
async function listenAlone(server: Server, path: string): Promise<void> {
  for (;;) {
    try {
      server.listen(path);
      await once(server, 'listening');
      return;
    } catch (error) {
      if (!isErrno(error, 'EADDRINUSE')) throw error;
    }
    if (await answersAt(path)) throw new Error('another activator has the relays');
    await rm(path, { force: true });
  }
}

async function answersAt(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
    return true;
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ECONNREFUSED')) return false;
    throw error;
  } finally {
    socket.destroy();
  }
}

/** @throws Error when it cannot be done */
async function perform(activator: Activator, request: Request): Promise<Value> {
  const { relays } = activator;
  switch (request.op) {
    case 'list':
      return { relays: [...relays.values()].map((relay) => relay.view()) };
    case 'see': {
      const relay = relays.get(request.id);
      return { relays: relay === undefined ? [] : [relay.view()] };
    }
    case 'clients':
      return { clients: relays.get(request.id)?.clients() ?? [] };
    case 'open':
      return { done: await open(activator, request) };
    case 'close':
      return { done: close(relays, request.id) };
    case 'hold':
      return { turn: relays.get(request.id)?.hold(request.idleMs) ?? null };
    case 'sleep':
      return { done: relays.get(request.id)?.sleep(request.turn) ?? false };
    case 'wake':
      await relays.get(request.id)?.wake();
      return { done: true };
  }
}

/** @returns false: the relay is in another state than expected */
async function open(
  { relays, descriptors, report }: Activator,
  { plan, state, from }: Extract<Request, { op: 'open' }>,
): Promise<boolean> {
  const { id } = plan;
  const relay = relays.get(id);
  if ((relay?.view().state ?? null) !== from) return false;
  if (relay !== undefined) return relay.change(plan, state);
  relays.set(id, await openRelay(plan, state, descriptors, () => report(id)));
  return true;
}

/** @returns false: it is waking, and the server that is being started would be left behind */
function close(relays: Map<string, Relay>, id: string): boolean {
  const relay = relays.get(id);
  if (relay?.view().state === 'waking') return false;
  relay?.close();
  relays.delete(id);
  return true;
}
