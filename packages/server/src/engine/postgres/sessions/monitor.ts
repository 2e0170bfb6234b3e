/**
 * One connection to every running server. It runs our statements. Its end reports a death within
 * milliseconds, whichever control plane started the server. A heartbeat on it detects a hang
 * (docs/performance.md, section 9.7).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type QueryResult, type QueryResultRow } from 'pg';
import { inTime, startPatience, type Patience } from '../../../lib/patience.ts';
import { monitorConfig } from './superuser.ts';
import type { SocketPlace } from '../server-files.ts';

/** How often a server is asked, and after how long without an answer it is reported. */
export type Heartbeat = { everyMs: number; deadlineMs: number };
export const SLOW_HEARTBEAT: Heartbeat = { everyMs: 5000, deadlineMs: 5000 };

/**
 * How long a server may take for a session or a statement of the monitor. Both are part of a round,
 * and a round finds out that the server hangs.
 */
const QUERY_DEADLINE_MS = 5000;

/**
 * Which processes an answer depends on, by what runs the servers. `Place` is where it finds a
 * server: a deadline counts only the time in which these processes could run.
 */
export type ServerProcesses<Place> = {
  /**
   * Whether a signal stopped the first process of a server, by its id: its sessions would answer,
   * but it would accept no new ones.
   */
  readonly isFrozen: (id: string) => Promise<boolean>;
  /** All processes of a server, its first one before the others; none: it does not run. */
  readonly ofServer: (place: Place) => Promise<readonly number[]>;
  /**
   * The process of a session: the other ones of a busy server say nothing about it.
   *
   * @param pid as the server knows it
   */
  readonly ofSession: (place: Place, pid: number) => Promise<readonly number[]>;
};

type Watch<Place> = {
  client: Client;
  place: Place;
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
type State<Place> = {
  readonly changed: (id: string) => void;
  readonly processes: ServerProcesses<Place>;
  readonly watches: Map<string, Watch<Place>>;
  /** Connections that no caller waits for, until they are made or have failed. */
  readonly soon: Map<string, Promise<void>>;
  /** The waits for servers that do not answer: each goes on until its server does. */
  readonly silent: Map<string, Patience>;
};

/** @param changed called with the id of a server that died, stopped answering or answers again */
export function createMonitor<Place extends SocketPlace>(
  changed: (id: string) => void,
  processes: ServerProcesses<Place>,
) {
  const watches = new Map<string, Watch<Place>>();
  const soon = new Map<string, Promise<void>>();
  const silent = new Map<string, Patience>();
  const state: State<Place> = { changed, processes, watches, soon, silent };
  return {
    connect: (id: string, place: Place, port: number, heartbeat = SLOW_HEARTBEAT) =>
      connect(state, id, place, port, heartbeat),
    /** Connects to a server that is ready, without a wait. A failure is reported as a change. */
    connectSoon: (id: string, place: Place, port: number, heartbeat: Heartbeat): void => {
      soon.set(id, connectUnawaited(state, id, place, port, heartbeat));
    },
    query: async <Row extends QueryResultRow>(
      id: string,
      text: string,
      values: unknown[] = [],
    ): Promise<Row[]> => {
      await soon.get(id);
      const watch = watches.get(id);
      if (watch === undefined) throw new NoAnswer('the server is not running');
      const deadline = { deadlineMs: QUERY_DEADLINE_MS, pids: pidsOf(state, watch) };
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
export type Monitor<Place extends SocketPlace> = ReturnType<typeof createMonitor<Place>>;

/** The servers that a monitor is connected to, by their ids. */
export type Monitored = Pick<Monitor<never>, 'query' | 'isConnected' | 'silentMs'>;

async function connect<Place extends SocketPlace>(
  state: State<Place>,
  id: string,
  place: Place,
  port: number,
  heartbeat: Heartbeat,
): Promise<void> {
  const { watches, changed } = state;
  drop(state, id);
  const client = new Client(monitorConfig(place, port));
  // Also emitted when the server ends the connection; 'end' follows, and we act on that.
  client.on('error', () => undefined);
  await connectInTime(state, id, place, client);
  endSilence(state, id);
  client.once('end', () => {
    if (watches.get(id)?.client !== client) return;
    drop(state, id);
    changed(id);
  });
  // A random first wait spreads the heartbeats of many servers.
  watches.set(id, {
    client,
    place,
    heartbeat,
    timer: setTimeout(
      () => void askForSignOfLife(state, id, client),
      heartbeat.everyMs * Math.random(),
    ),
    idle: Promise.resolve(),
  });
}

/** A server that opens no session in time is silent. */
async function connectInTime<Place extends SocketPlace>(
  state: State<Place>,
  id: string,
  place: Place,
  client: Client,
): Promise<void> {
  const { stream } = client.connection;
  const patience = startPatience({
    deadlineMs: QUERY_DEADLINE_MS,
    pids: () => state.processes.ofServer(place),
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

type Silent = Pick<State<never>, 'silent'>;

/** A server that was silent before is silent since then. */
function beginSilence({ silent }: Silent, id: string, patience: Patience): void {
  if (silent.has(id)) patience.stop();
  else silent.set(id, patience);
}

/** @returns whether it was silent */
function endSilence({ silent }: Silent, id: string): boolean {
  silent.get(id)?.stop();
  return silent.delete(id);
}

async function connectUnawaited<Place extends SocketPlace>(
  state: State<Place>,
  id: string,
  place: Place,
  port: number,
  heartbeat: Heartbeat,
): Promise<void> {
  const isConnected = await connect(state, id, place, port, heartbeat).then(
    () => true,
    () => false,
  );
  const isWanted = state.soon.delete(id);
  // Forgotten meanwhile: the server, or this process, is being stopped.
  if (isConnected && !isWanted) drop(state, id);
  // isConnected() has promised something else.
  if (isConnected !== isWanted) state.changed(id);
}

async function askForSignOfLife<Place>(
  state: State<Place>,
  id: string,
  client: Client,
): Promise<void> {
  const { watches, changed, processes } = state;
  const watch = watches.get(id);
  if (watch?.client !== client) return;
  const patience = startPatience({
    deadlineMs: watch.heartbeat.deadlineMs,
    pids: pidsOf(state, watch),
    onOver: () => {
      beginSilence(state, id, patience);
      changed(id);
    },
  });
  watch.patience = patience;
  try {
    // A late answer still counts: on a busy machine a server is slow and does not hang.
    await run(watch, 'select 1');
    while (watches.get(id) === watch && (await processes.isFrozen(id)))
      await sleep(watch.heartbeat.everyMs);
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
  <Place>({ processes }: State<Place>, { client, place }: Watch<Place>) =>
  async (): Promise<readonly number[]> => {
    const pid: unknown = Reflect.get(client, 'processID');
    return typeof pid === 'number' ? processes.ofSession(place, pid) : processes.ofServer(place);
  };

const noAnswer = (): NoAnswer =>
  new NoAnswer(`the server did not answer within ${QUERY_DEADLINE_MS / 1000} s`);

function drop<Place>({ watches, silent }: State<Place>, id: string): void {
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
  watch: Pick<Watch<never>, 'client' | 'idle'>,
  text: string,
  values?: unknown[],
): Promise<QueryResult<Row>> {
  const result = watch.idle.then(() => watch.client.query<Row>(text, values));
  watch.idle = result.catch(() => undefined);
  return result;
}
