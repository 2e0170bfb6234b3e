/** Reads the data of a service that a move to another region would copy, from its primary. */
import { EngineUnavailable } from '../engine.ts';
import {
  EXAMINED_WITHIN_MS,
  oneAtATime,
  readMovedData,
  readNames,
  STATEMENT_MS,
} from '../moved-data.ts';
import type { MovedData, Moves } from '../moves.ts';
import { withinTime } from '../time-limit.ts';
import { architecture, createMoveTarget } from './copy/target.ts';
import type { Local } from './local.ts';
import { ANSWER_DEADLINE_MS, withSuperuserSession } from './postgres/superuser.ts';
import { READ_ONLY_ROLES } from './postgres/read-only-sql.ts';
import { portOf } from './at-primary.ts';
import { createMoveActions, IS_OURS } from './move-actions.ts';
import { primaryPaths } from './topology/instances.ts';

export function createMoves(local: Pick<Local, 'machine' | 'topology' | 'notices'>): Moves {
  const read = oneAtATime((id: string) => readPrimary(local, id));
  return {
    place: 'machine',
    from: { read, ...createMoveActions(local) },
    to: createMoveTarget(local),
  };
}

async function readPrimary({ machine }: Pick<Local, 'machine'>, id: string): Promise<MovedData> {
  const paths = primaryPaths(machine, id);
  const where = { server: paths, port: await portOf(paths), name: 'howdah move', readOnly: true };
  const within = withinTime(EXAMINED_WITHIN_MS, () => performance.now());
  try {
    const data = await readMovedData({
      closed: [],
      roles: `select rolname::text as name from pg_roles r where not ${IS_OURS}`,
      readMore: async (session) => ({
        readOnlyRoles: await readNames(session, READ_ONLY_ROLES),
        systemSettings: await readNames(session, SYSTEM_SETTINGS),
      }),
      inSession: (database, work) =>
        withSuperuserSession(
          {
            ...where,
            ...(database === null ? {} : { database }),
            limitMs: within(STATEMENT_MS),
            answerMs: within(ANSWER_DEADLINE_MS),
          },
          work,
        ),
    });
    if (data === null) throw new Error('it cannot be read');
    return { architecture: architecture(), ...data };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new EngineUnavailable(reason, { cause: error });
  }
}

const SYSTEM_SETTINGS = `
  select distinct name from pg_file_settings
  where sourcefile like '%/postgresql.auto.conf' limit 100`;
