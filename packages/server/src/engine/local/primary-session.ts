/** Sessions of the superuser in the primary of a service, for moves. */
import { messageOf } from '@howdah/contract/thrown';
import type { Client } from 'pg';
import { EngineUnavailable } from '../engine.ts';
import { STATEMENT_MS } from '../moved-data.ts';
import { MoveRefused } from '../moves.ts';
import type { InstancePaths } from './host/layout.ts';
import type { Local } from './local.ts';
import { MAINTENANCE_DATABASE } from '../postgres/roles.ts';
import { findServer } from './postgres/server.ts';
import { phaseOf } from '../postgres/postmaster-file.ts';
import { ANSWER_DEADLINE_MS, withSuperuserSession } from '../postgres/sessions/superuser.ts';
import type { Within } from '../statements/session.ts';
import { primaryPaths } from './topology/instances.ts';

const unlimited: Within = (mostMs) => mostMs;

type Session = Readonly<{ database?: string; limitMs?: number; within?: Within }>;

/**
 * Runs work in a session of the superuser.
 *
 * @param session `within`: the time limit of all work that the session is a part of
 * @throws EngineUnavailable
 */
export async function atPrimary<T>(
  { machine }: Pick<Local, 'machine'>,
  id: string,
  work: (client: Client) => Promise<T>,
  { database = MAINTENANCE_DATABASE, limitMs = STATEMENT_MS, within = unlimited }: Session = {},
): Promise<T> {
  const paths = primaryPaths(machine, id);
  const port = await portOf(paths);
  try {
    const where = {
      server: paths,
      port,
      name: 'howdah move',
      database,
      limitMs: within(limitMs),
      answerMs: within(ANSWER_DEADLINE_MS),
    };
    return await withSuperuserSession(where, work);
  } catch (error) {
    if (error instanceof MoveRefused) throw error;
    const reason = messageOf(error);
    throw new EngineUnavailable(reason, { cause: error });
  }
}

/** @throws EngineUnavailable */
export async function portOf(paths: InstancePaths): Promise<number> {
  const server = await findServer(paths);
  if (server?.port == null || (await phaseOf(paths)) !== 'ready')
    throw new EngineUnavailable('its server does not accept connections');
  return server.port;
}
