/** The engine's side of the activator: starts it, and asks it. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isErrno } from '../../../lib/processes.ts';
import { ACTIVATOR_FILE } from '../../../paths.ts';
import { NotYet } from '../../not-yet.ts';
import { findDaemon, whyDaemonEnded } from '../host/daemon.ts';
import { launchDetached } from '../host/detached-program.ts';
import { daemonPaths, type DaemonPaths, type Layout } from '../host/layout.ts';
import { chmod, mkdir, rm } from '../host/root-files.ts';
import {
  eachLine,
  send,
  SOCKET_NAME,
  type Answer,
  type RelayClient,
  type RelayPlan,
  type RelayState,
  type RelayView,
  type Request,
  type Value,
} from './messages.ts';

const START_MS = 60_000;

type Link = Readonly<{ socket: Socket; ask: (request: Request) => Promise<Value> }>;

/** @param changed called with the id of a service whose relay has changed, or is gone */
export function createRelays(layout: Layout, changed: (id: string) => void) {
  const paths = daemonPaths(join(layout.root, 'activator'));
  const known = new Set<string>();
  const links = createLinks(paths, changed, () => known.forEach((id) => changed(id)));
  const ask = async (request: Request): Promise<Value> => (await links.now())?.ask(request) ?? {};

  return {
    /** @returns null: the service has no relay, or the activator does not run */
    see: async (id: string): Promise<RelayView | null> => {
      const [view] = (await ask({ op: 'see', id })).relays ?? [];
      if (view !== undefined) known.add(id);
      return view ?? null;
    },
    list: async (): Promise<readonly RelayView[]> => (await ask({ op: 'list' })).relays ?? [],
    clients: async (id: string): Promise<readonly RelayClient[]> =>
      (await ask({ op: 'clients', id })).clients ?? [],
    /** @throws NotYet when the relay is in another state than `from` */
    open: async (plan: RelayPlan, state: RelayState, from: RelayState | null): Promise<void> => {
      const { done } = await (await links.orStart()).ask({ op: 'open', plan, state, from });
      if (done !== true) throw new NotYet('a client has come to its relay meanwhile');
      known.add(plan.id);
    },
    /** @throws NotYet while a client has the server started */
    close: async (id: string): Promise<void> => {
      const { done } = await ask({ op: 'close', id });
      if (done === false) throw new NotYet('a client has its server started meanwhile');
      known.delete(id);
    },
    /**
     * Has clients wait, unless one is there or was within this time.
     *
     * @returns the turn, for `sleep`; null: a client is or was there
     */
    hold: async (id: string, idleMs: number): Promise<number | null> =>
      (await ask({ op: 'hold', id, idleMs })).turn ?? null,
    /** The server has stopped since a turn. @returns whether it sleeps */
    sleep: async (id: string, turn: number): Promise<boolean> =>
      (await ask({ op: 'sleep', id, turn })).done === true,
    /** Has the server of a relay started if it sleeps. @throws Error when it is not */
    wake: async (id: string): Promise<void> => void (await ask({ op: 'wake', id })),
    end: (): void => {
      known.clear();
      links.end();
    },
  };
}
export type Relays = ReturnType<typeof createRelays>;

/** @param lost called when the activator has ended */
function createLinks(paths: DaemonPaths, changed: (id: string) => void, lost: () => void) {
  let link: Promise<Link | null> | null = null;
  let starting: Promise<Link> | null = null;

  const forget = (): void => {
    link = null;
    lost();
  };
  const tryLink = async (): Promise<Link | null> => {
    let found: Link | null = null;
    try {
      found = await openLink(join(paths.root, SOCKET_NAME), changed, forget);
    } finally {
      if (found === null) link = null;
    }
    return found;
  };
  const now = (): Promise<Link | null> => (link ??= tryLink());
  const start = async (): Promise<Link> => {
    const endMs = Date.now() + START_MS;
    let isStarted = false;
    for (;;) {
      const found = await now();
      if (found !== null) return found;
      if (!isStarted && (await findDaemon(paths)) === null) {
        isStarted = true;
        await startActivator(paths);
      } else if (Date.now() > endMs)
        throw new Error(`the activator does not answer: ${await whyDaemonEnded(paths)}`);
      await sleep(5);
    }
  };
  return {
    /** @returns null: the activator does not run */
    now,
    /** Many services need it at the same time: one activator is started for all of them. */
    orStart: (): Promise<Link> =>
      (starting ??= start().finally(() => {
        starting = null;
      })),
    end: (): void => void link?.then((found) => found?.socket.destroy()),
  };
}

/** Starts the activator. The caller made sure that none runs. */
async function startActivator(paths: DaemonPaths): Promise<void> {
  await mkdir(paths.root, { recursive: true, mode: 0o700 });
  await chmod(paths.root, 0o700);
  await rm(paths.pidFile, { force: true });
  await launchDetached({
    command: [process.execPath, ACTIVATOR_FILE],
    owner: null,
    cwd: paths.root,
    pidFile: paths.pidFile,
    log: paths.log,
    within: [],
    // The activator starts servers of all services, each in an enclosure of its own.
    enclosure: { within: [], mounts: null },
  });
}

const ended = (): Error => new Error('the activator has ended');

/** @returns null: no activator runs */
async function openLink(
  path: string,
  changed: (id: string) => void,
  lost: () => void,
): Promise<Link | null> {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ECONNREFUSED')) return null;
    throw error;
  }
  const open = new Map<number, { resolve: (value: Value) => void; reject: (why: Error) => void }>();
  let asked = 0;
  eachLine(socket, (line) => {
    const answer: Answer = JSON.parse(line);
    if ('changed' in answer) return changed(answer.changed);
    const waiting = open.get(answer.n);
    open.delete(answer.n);
    if ('error' in answer) waiting?.reject(new Error(answer.error));
    else waiting?.resolve(answer.value);
  });
  socket
    .on('error', () => undefined)
    .once('close', () => {
      for (const { reject } of open.values()) reject(ended());
      lost();
    });
  return {
    socket: socket.unref(),
    ask: (request) =>
      new Promise((resolve, reject) => {
        if (socket.destroyed) return reject(ended());
        asked += 1;
        open.set(asked, { resolve, reject });
        send(socket, { ...request, n: asked });
      }),
  };
}
