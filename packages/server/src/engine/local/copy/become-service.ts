/**
 * Makes a copy the service. Every step can be repeated, and a crash at any point goes on:
 *
 * 1. The copy has replayed the shutdown of its service: its server is stopped, and its control file
 *    names that record as its last checkpoint. Only then a file says that the promotion has begun,
 *    the copy may connect nowhere any more, and it is no standby any more.
 * 2. PostgreSQL in single-user mode makes the superuser of this machine and closes the roles of the
 *    other region. Nobody else can have a session meanwhile. It ends with a checkpoint.
 * 3. The marker says that it is provisioned, and its directory becomes that of the service.
 *
 * The server goes on with the timeline of its service. The archive of this machine begins empty
 * with this server, and its first snapshot comes after the promotion: no file of another server has
 * the name of one of its own. Without a new timeline, a promotion that was interrupted is repeated
 * as any recovery from a crash is.
 */
import { join } from 'node:path';
import { renameDurably } from '../../../lib/durable.ts';
import { DATABASE_NAME } from '@howdah/contract';
import { EngineUnavailable } from '../../engine.ts';
import { writeOwned } from '../backup/take.ts';
import { currentBoot, readMarker, writeMarker } from '../host/marker.ts';
import { removeEntry } from '../host/service-files.ts';
import { moveUser } from '../host/users.ts';
import { readShutdown, readStandbyShutdown } from '../postgres/identity.ts';
import { MAINTENANCE_DATABASE } from '../postgres/files.ts';
import { missingFor, type Installation } from '../postgres/installations.ts';
import { fence, writeConfig } from '../postgres/server.ts';
import { clearForSingleUser, runSingleUser } from '../postgres/single-user.ts';
import { findShutdown } from '../postgres/wal-end.ts';
import type { Topology } from '../topology/context.ts';
import { stopInstance } from '../topology/start-stop.ts';
import type { FoundCopy } from './observe.ts';
import { copyFiles, forgetLogin, type CopySpec } from './place.ts';
import { databaseSql, DONE, serviceSql } from './service-sql.ts';
import { readBegun, writeBegun } from './begun-file.ts';
import { startCopy } from './start.ts';

/** Recovery, if it was interrupted before: the whole WAL since its last checkpoint. */
const SINGLE_USER_MS = 1_800_000;

type Parts = Pick<Topology, 'machine' | 'executor' | 'renewEgress'>;

/**
 * @returns a line for the user
 * @throws EngineUnavailable when it has not replayed all yet: its server runs on, or is started
 */
export async function becomeService(
  topology: Parts,
  spec: CopySpec,
  found: FoundCopy,
): Promise<string> {
  const { machine, renewEgress } = topology;
  const { paths, installation, marker } = found;
  if (installation === null || marker === null)
    throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
  const begunMs = Date.now();
  const shutdown = readBegun(paths) ?? (await endFollowing(topology, spec, found));
  // In this order: what it may connect to ends before anything of its data can run.
  await forgetLogin(paths);
  await renewEgress();
  await removeEntry(join(paths.data, 'standby.signal'));
  await makeService(topology, spec, found, installation);
  const end = await readShutdown(paths.data);
  if (end === null || end <= shutdown)
    throw new Error('PostgreSQL in single-user mode did not shut down in order');
  await writeMarker(paths, { ...marker, provisioned: true, madeIn: await currentBoot() });
  return `in ${Date.now() - begunMs} ms`;
}

/** @returns the position of the shutdown of its service, which it has replayed */
async function endFollowing(topology: Parts, spec: CopySpec, found: FoundCopy): Promise<bigint> {
  const { executor } = topology;
  const { paths, server } = found;
  if (server !== null) await stopInstance(executor, spec.id, paths, server, 'fast');
  if (!(await fence(paths))) throw new Error('its server does not end');
  const shutdown = await findShutdown(paths.data);
  if (shutdown === null) throw new Error('its WAL does not end with the shutdown of its service');
  if ((await readStandbyShutdown(paths.data)) !== shutdown) {
    await startCopy(topology, spec, found);
    throw new EngineUnavailable('it has not replayed all WAL yet');
  }
  await writeBegun(paths, shutdown);
  return shutdown;
}

/** Runs the SQL of a promotion. @throws Error with the reason of PostgreSQL */
async function makeService(
  { machine }: Parts,
  spec: CopySpec,
  { paths, owner }: FoundCopy,
  installation: Installation,
): Promise<void> {
  await clearForSingleUser(paths);
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
  await writeConfig(owner, paths, copyFiles(spec, paths, { installation, owner }, null));
  const data = { paths, owner, installation, size: spec.size, deadlineMs: SINGLE_USER_MS };
  const run = (database: string, statements: readonly string[]) =>
    runSingleUser(machine, data, database, statements);
  // Its owner may have the extension, or have dropped the database.
  await run(DATABASE_NAME, databaseSql()).catch(() => undefined);
  if (!(await run(MAINTENANCE_DATABASE, serviceSql())).includes(`"${DONE}"`))
    throw new Error('PostgreSQL in single-user mode did not perform all statements');
}

/** Gives a promoted copy the name of the service. Its user goes along. @returns a line */
export async function renameCopy(
  { machine }: Pick<Topology, 'machine'>,
  { id }: CopySpec,
): Promise<string> {
  const { layout, isolation } = machine;
  const [from, to] = [layout.copy(id), layout.service(id)];
  const uid = (await readMarker(from))?.uid ?? null;
  // First: the user of a directory that is gone is given to another service.
  if (isolation.isolated && uid !== null) await moveUser(isolation.users, uid, to.root);
  await renameDurably(from.root, to.root);
  return 'it is the service';
}
