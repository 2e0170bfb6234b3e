/**
 * One connection to every running server: it runs our statements, its closing tells of a death within milliseconds whoever
 * started the server, and a heartbeat on it tells of a hang (performance.md, section 9.7).
 */
import { Client, type QueryResultRow } from 'pg';
import { CONTROL_ROLE } from './files.ts';
import type { InstancePaths } from './layout.ts';

export const HEARTBEAT_MS = 5000;
/** A server that has not answered for this long is reported; it may still come back by itself. */
export const ANSWER_DEADLINE_MS = 5000;

type Watch = { client: Client; timer: NodeJS.Timeout };

/** A server that did not answer in time. */
export class NoAnswer extends Error {}

/**
 * @param changed called when a watched server died, stopped answering or answers again, with its id
 * @param isFrozen whether a server's first process was stopped by a signal: running sessions would answer, new ones could not begin
 */
export function createMonitor(changed: (id: string) => void, isFrozen: (id: string) => Promise<boolean>) {
  const watches = new Map<string, Watch>();
  /** Since when a server has not answered, in ms since the epoch. */
  const silentSince = new Map<string, number>();

  const connect = async (id: string, paths: InstancePaths, port: number): Promise<void> => {
    drop(id);
    const begunMs = Date.now();
    const client = new Client({
      host: paths.socket,
      port,
      user: CONTROL_ROLE,
      database: 'postgres',
      application_name: 'howdah',
      connectionTimeoutMillis: ANSWER_DEADLINE_MS,
    });
    // Emitted when the server ends the connection, too; 'end' follows and is what we act on.
    client.on('error', () => undefined);
    try {
      await client.connect();
    } catch (error) {
      if (Date.now() - begunMs >= ANSWER_DEADLINE_MS && !silentSince.has(id)) silentSince.set(id, begunMs);
      throw error;
    }
    silentSince.delete(id);
    client.once('end', () => {
      if (watches.get(id)?.client !== client) return;
      drop(id);
      changed(id);
    });
    // A random first beat keeps the beats of many servers apart.
    watches.set(id, { client, timer: setTimeout(() => void beat(id, client), HEARTBEAT_MS * Math.random()) });
  };

  const beat = async (id: string, client: Client): Promise<void> => {
    const watch = watches.get(id);
    if (watch?.client !== client) return;
    const begunMs = Date.now();
    watch.timer = setTimeout(() => {
      if (!silentSince.has(id)) silentSince.set(id, begunMs);
      changed(id);
    }, ANSWER_DEADLINE_MS);
    try {
      // The answer to a late beat still counts: a machine that was busy is no server that hangs.
      await client.query('select 1');
      if (watches.get(id) !== watch || (await isFrozen(id))) return;
    } catch {
      return; // the connection broke: 'end' tells of it
    }
    clearTimeout(watch.timer);
    if (silentSince.delete(id)) changed(id);
    watch.timer = setTimeout(() => void beat(id, client), HEARTBEAT_MS);
  };

  const drop = (id: string): void => {
    const watch = watches.get(id);
    if (watch === undefined) return;
    watches.delete(id);
    clearTimeout(watch.timer);
    // Not `end()`, which waits for a server that may hang.
    watch.client.connection.stream.destroy();
  };

  const query = async <Row extends QueryResultRow>(id: string, text: string, values: unknown[] = []): Promise<Row[]> => {
    const watch = watches.get(id);
    if (watch === undefined) throw new NoAnswer('the server is not running');
    return (await inTime(watch.client.query<Row>(text, values))).rows;
  };

  return {
    connect,
    query,
    /** Ends the watch without telling: before a server is stopped on purpose, or when it is gone. */
    forget: (id: string): void => {
      drop(id);
      silentSince.delete(id);
    },
    isConnected: (id: string) => watches.has(id),
    /** For how long a server has not answered, in ms; null: it answers. */
    silentMs: (id: string): number | null => {
      const since = silentSince.get(id);
      return since === undefined ? null : Date.now() - since;
    },
    close: () => [...watches.keys()].forEach(drop),
  };
}
export type Monitor = ReturnType<typeof createMonitor>;

async function inTime<T>(answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new NoAnswer(`the server did not answer within ${ANSWER_DEADLINE_MS / 1000} s`)), ANSWER_DEADLINE_MS);
  });
  try {
    return await Promise.race([answer, deadline]);
  } finally {
    clearTimeout(timer);
    answer.catch(() => undefined);
  }
}
