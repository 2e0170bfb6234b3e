/**
 * One connection to every running server: it runs our statements, its end reports a death within milliseconds, whichever control plane
 * started the server, and a heartbeat on it tells of a hang (performance.md, section 9.7).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type QueryResultRow } from 'pg';
import type { InstancePaths } from '../host/layout.ts';
import { ANSWER_DEADLINE_MS, monitorConfig } from './superuser.ts';

/** How often a server is asked, and after how long without an answer it is reported; it may still come back by itself. */
export type Heartbeat = { everyMs: number; deadlineMs: number };
export const SLOW_HEARTBEAT: Heartbeat = { everyMs: 5000, deadlineMs: 5000 };

type Watch = { client: Client; heartbeat: Heartbeat; timer: NodeJS.Timeout };

/** A server that did not answer in time. */
export class NoAnswer extends Error {}

/**
 * @param changed called when a watched server died, stopped answering or answers again, with its id
 * @param isFrozen whether a server's first process was stopped by a signal: running sessions would answer, new ones could not begin
 */
export function createMonitor(
  changed: (id: string) => void,
  isFrozen: (id: string) => Promise<boolean>,
) {
  const watches = new Map<string, Watch>();
  /** Connections that nobody waits for, until they are there or have failed. */
  const soon = new Map<string, Promise<void>>();
  /** Since when a server has not answered, by a clock that stands still while the machine sleeps. */
  const silentSince = new Map<string, number>();

  const connect = async (
    id: string,
    paths: InstancePaths,
    port: number,
    heartbeat = SLOW_HEARTBEAT,
  ): Promise<void> => {
    drop(id);
    const begunMs = performance.now();
    const client = new Client(monitorConfig(paths, port));
    // Emitted when the server ends the connection, too; 'end' follows and is what we act on.
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
      drop(id);
      changed(id);
    });
    // A random first beat keeps the heartbeat of many servers apart.
    watches.set(id, {
      client,
      heartbeat,
      timer: setTimeout(() => void beat(id, client), heartbeat.everyMs * Math.random()),
    });
  };

  /** Connects to a server that has said that it is ready. Its users need not wait for that: where it fails, it is told as a change. */
  const connectSoon = (
    id: string,
    paths: InstancePaths,
    port: number,
    heartbeat: Heartbeat,
  ): void => {
    const attempt = async (): Promise<void> => {
      const connected = await connect(id, paths, port, heartbeat).then(
        () => true,
        () => false,
      );
      const wanted = soon.delete(id);
      // Forgotten meanwhile: the server was stopped, or we are.
      if (connected && !wanted) drop(id);
      // It is not as it was left: told to be connected and not, or the other way round.
      if (connected !== wanted) changed(id);
    };
    soon.set(id, attempt());
  };

  const beat = async (id: string, client: Client): Promise<void> => {
    const watch = watches.get(id);
    if (watch?.client !== client) return;
    const begunMs = performance.now();
    watch.timer = setTimeout(() => {
      if (!silentSince.has(id)) silentSince.set(id, begunMs);
      changed(id);
    }, watch.heartbeat.deadlineMs);
    try {
      // The answer to a late beat still counts: a machine that was busy is no server that hangs.
      await client.query('select 1');
      while (watches.get(id) === watch && (await isFrozen(id)))
        await sleep(watch.heartbeat.everyMs);
      if (watches.get(id) !== watch) return;
    } catch {
      return; // the connection broke: 'end' tells of it
    }
    clearTimeout(watch.timer);
    if (silentSince.delete(id)) changed(id);
    watch.timer = setTimeout(() => void beat(id, client), watch.heartbeat.everyMs);
  };

  const drop = (id: string): void => {
    const watch = watches.get(id);
    if (watch === undefined) return;
    watches.delete(id);
    clearTimeout(watch.timer);
    // Not `end()`, which waits for a server that may hang.
    watch.client.connection.stream.destroy();
  };

  const query = async <Row extends QueryResultRow>(
    id: string,
    text: string,
    values: unknown[] = [],
  ): Promise<Row[]> => {
    await soon.get(id);
    const watch = watches.get(id);
    if (watch === undefined) throw new NoAnswer('the server is not running');
    return (await inTime(watch.client.query<Row>(text, values))).rows;
  };

  return {
    connect,
    connectSoon,
    query,
    /** Ends the watch without telling: before a server is stopped on purpose, or when it is gone. */
    forget: (id: string): void => {
      drop(id);
      soon.delete(id);
      silentSince.delete(id);
    },
    isConnected: (id: string) => watches.has(id) || soon.has(id),
    /** For how long a server has not answered, in ms; null: it answers. */
    silentMs: (id: string): number | null => {
      const since = silentSince.get(id);
      return since === undefined ? null : performance.now() - since;
    },
    close: () => {
      soon.clear();
      [...watches.keys()].forEach(drop);
    },
  };
}
export type Monitor = ReturnType<typeof createMonitor>;

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
