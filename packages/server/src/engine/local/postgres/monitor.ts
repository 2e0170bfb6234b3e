/**
 * One connection to every running server. It runs our statements. Its end reports a death within
 * milliseconds, whichever control plane started the server. A heartbeat on it detects a hang
 * (docs/performance.md, section 9.7).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type QueryResult, type QueryResultRow } from 'pg';
import type { InstancePaths } from '../host/layout.ts';
import { ANSWER_DEADLINE_MS, monitorConfig } from './superuser.ts';

/** How often a server is asked, and after how long without an answer it is reported. */
export type Heartbeat = { everyMs: number; deadlineMs: number };
export const SLOW_HEARTBEAT: Heartbeat = { everyMs: 5000, deadlineMs: 5000 };

type Watch = {
  client: Client;
  heartbeat: Heartbeat;
  timer: NodeJS.Timeout;
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
  /** When a server stopped answering, by a clock that pauses while the machine sleeps. */
  readonly silentSince: Map<string, number>;
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
  const silentSince = new Map<string, number>();
  const state: State = { changed, isFrozen, watches, soon, silentSince };
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
      return (await inTime(run<Row>(watch, text, values))).rows;
    },
    /**
     * Ends the watch without a report: before a server is stopped on purpose, or when it is gone.
     */
    forget: (id: string): void => {
      drop(state, id);
      soon.delete(id);
      silentSince.delete(id);
    },
    isConnected: (id: string) => watches.has(id) || soon.has(id),
    /** How long a server has not answered, in ms; null: it answers. */
    silentMs: (id: string): number | null => {
      const since = silentSince.get(id);
      return since === undefined ? null : performance.now() - since;
    },
    close: () => {
      soon.clear();
      for (const id of watches.keys()) drop(state, id);
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
  const { watches, silentSince, changed } = state;
  drop(state, id);
  const begunMs = performance.now();
  const client = new Client(monitorConfig(paths, port));
  // Also emitted when the server ends the connection; 'end' follows, and we act on that.
  client.on('error', () => undefined);
  try {
    await client.connect();
  } catch (error) {
    if (performance.now() - begunMs >= ANSWER_DEADLINE_MS && !silentSince.has(id))
      silentSince.set(id, begunMs);
    throw error;
  }
  silentSince.delete(id);
  client.once('end', () => {
    if (watches.get(id)?.client !== client) return;
    drop(state, id);
    changed(id);
  });
  // A random first wait spreads the heartbeats of many servers.
  watches.set(id, {
    client,
    heartbeat,
    timer: setTimeout(
      () => void askForSignOfLife(state, id, client),
      heartbeat.everyMs * Math.random(),
    ),
    idle: Promise.resolve(),
  });
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
  const { watches, silentSince, changed, isFrozen } = state;
  const watch = watches.get(id);
  if (watch?.client !== client) return;
  const begunMs = performance.now();
  awaitSignOfLife(watch, () => {
    if (!silentSince.has(id)) silentSince.set(id, begunMs);
    changed(id);
  });
  try {
    // A late answer still counts: on a busy machine a server is slow and does not hang.
    await run(watch, 'select 1');
    while (watches.get(id) === watch && (await isFrozen(id))) await sleep(watch.heartbeat.everyMs);
    if (watches.get(id) !== watch) return;
  } catch {
    return; // the connection broke: 'end' follows
  }
  clearTimeout(watch.timer);
  if (silentSince.delete(id)) changed(id);
  watch.timer = setTimeout(() => void askForSignOfLife(state, id, client), watch.heartbeat.everyMs);
}

/** A timer that is later than this shows that this process was paused, or its machine was busy. */
const PAUSED_MS = 20;

/**
 * Reports a server that does not answer in time. If this process was paused meanwhile, answers may
 * be there that it has not read yet: the server gets the same time once more.
 */
function awaitSignOfLife(watch: Watch, report: () => void): void {
  const { deadlineMs } = watch.heartbeat;
  const dueMs = performance.now() + deadlineMs;
  watch.timer = setTimeout(() => {
    if (performance.now() < dueMs + PAUSED_MS) report();
    else watch.timer = setTimeout(report, deadlineMs);
  }, deadlineMs);
}

function drop({ watches }: State, id: string): void {
  const watch = watches.get(id);
  if (watch === undefined) return;
  watches.delete(id);
  clearTimeout(watch.timer);
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

async function inTime<T>(answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new NoAnswer(`the server did not answer within ${ANSWER_DEADLINE_MS / 1000} s`)),
      ANSWER_DEADLINE_MS,
    );
  });
  try {
    return await Promise.race([answer, deadline]);
  } finally {
    clearTimeout(timer);
    answer.catch(() => undefined);
  }
}
