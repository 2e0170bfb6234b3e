/**
 * One connection to every running server: it runs our statements, its closing tells of a death within milliseconds whoever
 * started the server, and a heartbeat on it tells of a hang (performance.md, section 9.7).
 */
import { Client, type QueryResultRow } from 'pg';
import { CONTROL_ROLE } from './files.ts';
import type { InstancePaths } from './layout.ts';

export const HEARTBEAT_MS = 5000;
/** A server that has not answered for this long hangs. */
export const ANSWER_DEADLINE_MS = 5000;

type Watch = { client: Client; hung: boolean; timer: NodeJS.Timeout };

/** A server that did not answer in time. */
export class NoAnswer extends Error {}

/** @param changed called when a watched server died or hangs, with its id */
export function createMonitor(changed: (id: string) => void) {
  const watches = new Map<string, Watch>();

  const connect = async (id: string, paths: InstancePaths, port: number): Promise<void> => {
    drop(id);
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
    await client.connect();
    client.once('end', () => {
      if (watches.get(id)?.client !== client) return;
      drop(id);
      changed(id);
    });
    // A random first beat keeps the beats of many servers apart.
    watches.set(id, { client, hung: false, timer: setTimeout(() => void beat(id, client), HEARTBEAT_MS * Math.random()) });
  };

  const beat = async (id: string, client: Client): Promise<void> => {
    const watch = watches.get(id);
    if (watch?.client !== client) return;
    try {
      await inTime(client.query('select 1'));
      watch.hung = false;
      watch.timer = setTimeout(() => void beat(id, client), HEARTBEAT_MS);
    } catch {
      if (watches.get(id) !== watch) return;
      watch.hung = true;
      changed(id);
    }
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
    /** Ends the watch without telling: before a server is stopped on purpose. */
    drop,
    isConnected: (id: string) => watches.has(id),
    isHung: (id: string) => watches.get(id)?.hung === true,
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
