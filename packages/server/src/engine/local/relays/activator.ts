/**
 * The activator: a small process of an installation that holds the listeners of services that may
 * fall asleep. It outlives the control plane, and starts servers without it
 * (docs/decisions/0109-sleep-and-wake.md).
 */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { rm } from '../host/root-files.ts';
import { openRelay, type Relay } from './relay.ts';
import { eachLine, send, type Request, type Value } from './messages.ts';

type Relays = Map<string, Relay>;

/** @param path of the Unix socket of the engine, in a directory that nobody else can enter */
export async function runActivator(path: string): Promise<void> {
  const relays: Relays = new Map();
  const engines = new Set<Socket>();
  const report = (id: string): void => engines.forEach((engine) => send(engine, { changed: id }));
  const server = createServer((engine) => {
    engines.add(engine);
    engine.on('error', () => undefined).once('close', () => engines.delete(engine));
    // One after the other: an open that waits for its port is followed by what comes after it.
    let before: Promise<void> = Promise.resolve();
    eachLine(engine, (line) => {
      const request: Request & { n: number } = JSON.parse(line);
      const answer = async (): Promise<void> => {
        try {
          send(engine, { n: request.n, value: await perform(relays, request, report) });
        } catch (error) {
          const text = error instanceof Error ? error.message : String(error);
          send(engine, { n: request.n, error: text });
        }
      };
      // A wake takes as long as its server, and keeps no other request waiting.
      if (request.op === 'wake') void answer();
      else before = before.then(answer);
    });
  });
  await rm(path, { force: true });
  server.listen(path);
  await once(server, 'listening');
}

/** @throws Error when it cannot be done */
async function perform(
  relays: Relays,
  request: Request,
  report: (id: string) => void,
): Promise<Value> {
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
      return { done: await open(relays, request, report) };
    case 'close':
      relays.get(request.id)?.close();
      return { done: relays.delete(request.id) };
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
  relays: Relays,
  { plan, state, from }: Extract<Request, { op: 'open' }>,
  report: (id: string) => void,
): Promise<boolean> {
  const relay = relays.get(plan.id);
  if ((relay?.view().state ?? null) !== from) return false;
  if (relay === undefined) relays.set(plan.id, await openRelay(plan, state, () => report(plan.id)));
  else await relay.change(plan, state);
  return true;
}
