/**
 * One connection to every running server. It runs our statements. Its end reports a death within
 * milliseconds, whichever control plane started the server. A heartbeat on it detects a hang
 * (docs/performance.md, section 9.7).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type QueryResult, type QueryResultRow } from 'pg';
import { inTime, startPatience, type Patience } from '../../../lib/patience.ts';
import type { InstancePaths } from '../host/layout.ts';
import { monitorConfig } from './superuser.ts';
import { childrenOf, readOrNull } from '../../../lib/processes.ts';
import { findServer } from './server.ts';

/** How often a server is asked, and after how long without an answer it is reported. */
export type Heartbeat = { everyMs: number; deadlineMs: number };
export const SLOW_HEARTBEAT: Heartbeat = { everyMs: 5000, deadlineMs: 5000 };

/**
 * How long a server may take for a session or a statement of the monitor. Both are part of a round,
 * and a round finds out that the server hangs.
 */
const QUERY_DEADLINE_MS = 5000;

type Watch = {
  client: Client;
  paths: InstancePaths;
  heartbeat: Heartbeat;
  /** The next heartbeat. */
  timer: NodeJS.Timeout;
  /** The wait for the answer to the last one. */
  patience?: Patience;
  /** Resolves when the statements begun so far have ended: a client takes one at a time. */
  idle: Promise<unknown>;
};

/** A server that did not answer in time. */
export class NoAnswer extends Error {}

/** The state of the monitor, by the ids of servers. */
type State = {
  readonly changed: (id: string) => void;
  readonly isFrozen: (id: string) => Promise<boolean>;
  readonly watches: Map<string, Watch>;
  /** Connections that no caller waits for, until they are made or have failed. */
  readonly soon: Map<string, Promise<void>>;
  /** The waits for servers that do not answer: each goes on until its server does. */
  readonly silent: Map<string, Patience>;
};

/**
 * @param changed called with the id of a server that died, stopped answering or answers again
 * @param isFrozen whether a signal stopped a server's first process: its sessions would answer, but
 *   it would accept no new ones
 */
export function createMonitor(
  changed: (id: string) => void,
  isFrozen: (id: string) => Promise<boolean>,
) {
  const watches = new Map<string, Watch>();
  const soon = new Map<string, Promise<void>>();
  const silent = new Map<string, Patience>();
  const state: State = { changed, isFrozen, watches, soon, silent };
  return {
    connect: (id: string, paths: InstancePaths, port: number, heartbeat = SLOW_HEARTBEAT) =>
      connect(state, id, paths, port, heartbeat),
    /** Connects to a server that is ready, without a wait. A failure is reported as a change. */
    connectSoon: (id: string, paths: InstancePaths, port: number, heartbeat: Heartbeat): void => {
      soon.set(id, connectUnawaited(state, id, paths, port, heartbeat));
    },
    query: async <Row extends QueryResultRow>(
      id: string,
      text: string,
      values: unknown[] = [],
    ): Promise<Row[]> => {
      await soon.get(id);
      const watch = watches.get(id);
      if (watch === undefined) throw new NoAnswer('the server is not running');
      const deadline = { deadlineMs: QUERY_DEADLINE_MS, pids: pidsOf(watch) };
      return (await inTime(run<Row>(watch, text, values), deadline, noAnswer)).rows;
    },
    /**
     * Ends the watch without a report: before a server is stopped on purpose, or when it is gone.
     */
    forget: (id: string): void => {
      drop(state, id);
      soon.delete(id);
      endSilence(state, id);
    },
    isConnected: (id: string) => watches.has(id) || soon.has(id),
    /**
     * How long a server has not answered, in ms, without the time in which it could not
     * (`lib/patience.ts`); null: it answers.
     */
    silentMs: (id: string): number | null => silent.get(id)?.countedMs() ?? null,
    close: () => {
      soon.clear();
      for (const id of watches.keys()) drop(state, id);
      for (const id of silent.keys()) endSilence(state, id);
    },
  };
}
export type Monitor = ReturnType<typeof createMonitor>;

async function connect(
  state: State,
  id: string,
  paths: InstancePaths,
  port: number,
  heartbeat: Heartbeat,
): Promise<void> {
  const { watches, changed } = state;
  drop(state, id);
  const client = new Client(monitorConfig(paths, port));
  // Also emitted when the server ends the connection; 'end' follows, and we act on that.
  client.on('error', () => undefined);
  await connectInTime(state, id, paths, client);
  endSilence(state, id);
  client.once('end', () => {
    if (watches.get(id)?.client !== client) return;
    drop(state, id);
    changed(id);
  });
  // A random first wait spreads the heartbeats of many servers.
  watches.set(id, {
    client,
    paths,
    heartbeat,
    timer: setTimeout(
      () => void askForSignOfLife(state, id, client),
      heartbeat.everyMs * Math.random(),
    ),
    idle: Promise.resolve(),
  });
}

/** A server that opens no session in time is silent. */
async function connectInTime(
  state: State,
  id: string,
  paths: InstancePaths,
  client: Client,
): Promise<void> {
  const { stream } = client.connection;
  const patience = startPatience({
    deadlineMs: QUERY_DEADLINE_MS,
    pids: () => processesOf(paths),
    onOver: () => stream.destroy(noAnswer()),
  });
  try {
    await client.connect();
    patience.stop();
  } catch (error) {
    stream.destroy();
    if (patience.isOver()) beginSilence(state, id, patience);
    else patience.stop();
    throw error;
  }
}

/** A server that was silent before is silent since then. */
function beginSilence({ silent }: State, id: string, patience: Patience): void {
  if (silent.has(id)) patience.stop();
  else silent.set(id, patience);
}

/** @returns whether it was silent */
function endSilence({ silent }: State, id: string): boolean {
  silent.get(id)?.stop();
  return silent.delete(id);
}

async function connectUnawaited(
  state: State,
  id: string,
  paths: InstancePaths,
  port: number,
  heartbeat: Heartbeat,
): Promise<void> {
  const isConnected = await connect(state, id, paths, port, heartbeat).then(
    () => true,
    () => false,
  );
  const isWanted = state.soon.delete(id);
  // Forgotten meanwhile: the server, or this process, is being stopped.
  if (isConnected && !isWanted) drop(state, id);
  // isConnected() has promised something else.
  if (isConnected !== isWanted) state.changed(id);
}

async function askForSignOfLife(state: State, id: string, client: Client): Promise<void> {
  const { watches, changed, isFrozen } = state;
  const watch = watches.get(id);
  if (watch?.client !== client) return;
  const patience = startPatience({
    deadlineMs: watch.heartbeat.deadlineMs,
    pids: pidsOf(watch),
    onOver: () => {
      beginSilence(state, id, patience);
      changed(id);
    },
  });
  watch.patience = patience;
  try {
    // A late answer still counts: on a busy machine a server is slow and does not hang.
    await run(watch, 'select 1');
    while (watches.get(id) === watch && (await isFrozen(id))) await sleep(watch.heartbeat.everyMs);
    if (watches.get(id) !== watch) return;
  } catch {
    return; // the connection broke: 'end' follows
  }
  patience.stop();
  if (endSilence(state, id)) changed(id);
  watch.timer = setTimeout(() => void askForSignOfLife(state, id, client), watch.heartbeat.everyMs);
}

/** The process that answers the monitor. */
const pidsOf =
  ({ client, paths }: Watch) =>
  async (): Promise<readonly number[]> => {
    const pid: unknown = Reflect.get(client, 'processID');
    return typeof pid === 'number' ? backendOf(paths, pid) : processesOf(paths);
  };

const noAnswer = (): NoAnswer =>
  new NoAnswer(`the server did not answer within ${QUERY_DEADLINE_MS / 1000} s`);

function drop({ watches, silent }: State, id: string): void {
  const watch = watches.get(id);
  if (watch === undefined) return;
  watches.delete(id);
  clearTimeout(watch.timer);
  // The silence of a server goes on while it is connected to again.
  if (silent.get(id) !== watch.patience) watch.patience?.stop();
  // Not `end()`, which waits for a server that may hang.
  watch.client.connection.stream.destroy();
}

/** Runs a statement after those that were begun before it. */
function run<Row extends QueryResultRow>(
  watch: Watch,
  text: string,
  values?: unknown[],
): Promise<QueryResult<Row>> {
  const result = watch.idle.then(() => watch.client.query<Row>(text, values));
  watch.idle = result.catch(() => undefined);
  return result;
}

// The processes of a server that an answer depends on.

/** All processes of a server, its first one before the others; none: it does not run. */
async function processesOf(paths: InstancePaths): Promise<number[]> {
  const server = await findServer(paths);
  if (server === null) return [];
  const { pid } = server.postmaster;
  return [pid, ...(await childrenOf(pid))];
}

/**
 * The process of a session: the other ones of a busy server say nothing about it.
 *
 * @param pid as the server knows it, which may be in a PID namespace
 */
async function backendOf(paths: InstancePaths, pid: number): Promise<number[]> {
  for (const candidate of await processesOf(paths))
    if ((await pidInside(candidate)) === pid) return [candidate];
  return [];
}

/** The pid of a process in its own namespace; null: the process is gone. */
async function pidInside(pid: number): Promise<number | null> {
  const status = (await readOrNull(`/proc/${pid}/status`)) ?? '';
  const inside = /^NSpid:.*\t(\d+)$/m.exec(status)?.[1];
  return inside === undefined ? null : Number(inside);
}
