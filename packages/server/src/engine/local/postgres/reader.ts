/**
 * Runs statements that users send through the API, on servers of this machine. The monitor's
 * connection makes the role, and ends sessions from outside.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { DATABASE_NAME, type QueryResult } from '@howdah/contract';
import { createTurns } from '../../../lib/turns.ts';
import { EngineUnavailable, type ReadStatement } from '../../engine.ts';
import { READER_ROLE } from '../../statements/reader-role.ts';
import { beginReading, runStatement } from '../../statements/run.ts';
import { openSession, type StatementServer } from '../../statements/session.ts';
import { CAN_WRITE, REVOKE_WRITERS } from '../../statements/writers.ts';
import { serviceSocket } from '../host/service-socket.ts';
import type { Monitor } from './monitor.ts';
import {
  createReaderRole,
  FOLLOWS_WITHIN_MS,
  portAt,
  superuserAt,
  waitForReaderRole,
  type Place,
} from './reader-role.ts';

export function createReader(monitor: Monitor) {
  const open = new Set<Client>();
  const creating = new Map<string, Promise<void>>();
  const inTurn = createTurns();

  /** Makes sure of the role, once for all who wait for it. */
  const createReader = async (place: Place, database: string): Promise<void> => {
    const key = `${place.key} ${database}`;
    const role =
      creating.get(key) ??
      // Two databases of a server at a time would change the role at a time.
      inTurn(place.key, () => createReaderRole(monitor, place, database)).finally(() =>
        creating.delete(key),
      );
    creating.set(key, role);
    await role;
  };

  /** @param primary where the role is made: the server itself, or the one that it follows */
  const read = async (
    place: Place,
    primary: Place,
    statement: ReadStatement,
  ): Promise<QueryResult> => {
    const { database = DATABASE_NAME } = statement;
    await createReader(primary, database);
    if (place !== primary) await waitForReaderRole(monitor, place.key);
    const server = serverAt(monitor, place, database);
    const client = await begin(server, primary, database, statement.timeoutMs);
    open.add(client);
    try {
      return await runStatement(client, server, statement);
    } finally {
      open.delete(client);
      // Not `end()`, which would wait for a server that may hang. Whatever was locked or is still
      // to come ends with the session.
      client.connection.stream.destroy();
    }
  };

  return { read, close: () => open.forEach((client) => client.connection.stream.destroy()) };
}

function serverAt(monitor: Monitor, place: Place, database: string): StatementServer {
  return {
    config: async () => ({
      database,
      host: place.paths.socket,
      stream: serviceSocket,
      port: await portAt(place),
    }),
    terminate: async (pid) => {
      await monitor.query(place.key, 'select pg_catalog.pg_terminate_backend($1)', [pid]);
    },
    answers: () =>
      monitor.query(place.key, 'select 1').then(
        () => true,
        () => false,
      ),
  };
}

/**
 * Opens a session that cannot write, or removes what would let it.
 *
 * @param primary where that is done
 */
async function begin(
  server: StatementServer,
  primary: Place,
  database: string,
  timeoutMs: number,
): Promise<Client> {
  for (const begunMs = performance.now(); ; await sleep(20)) {
    const client = await openSession(server, timeoutMs);
    const facts = await beginReading<{ writes: boolean }>(client, server, `${CAN_WRITE} as writes`);
    if (facts?.writes === false) return client;
    client.connection.stream.destroy();
    if (performance.now() - begunMs > FOLLOWS_WITHIN_MS)
      throw new EngineUnavailable(
        `the role ${READER_ROLE} can call functions that write, and that cannot be revoked at ` +
          'the moment',
      );
    await superuserAt(primary, database, async (superuser) => {
      await superuser.query(REVOKE_WRITERS);
    });
  }
}
