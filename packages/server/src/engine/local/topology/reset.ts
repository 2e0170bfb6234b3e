/**
 * Resets a fork: the data of its parent is cloned beside the fork, which runs meanwhile, and then
 * exchanged with its own (docs/decisions/0110-resets.md). A failure before the exchange leaves the
 * fork as it was.
 */
import { join } from 'node:path';
import { ADMIN_ROLE } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { readText } from '../../../lib/untrusted-files.ts';
import type { ShowProgress } from '../../engine.ts';
import { NotYet, Refused } from '../../not-yet.ts';
import type { Origin, Upgrade } from '../../spec.ts';
import { copyPaths, discardCopy, killCopy, sweepCopies } from '../backup/copy.ts';
import { isArchiveAway } from '../backup/linked-archive.ts';
import { recoverOn } from '../backup/recovery.ts';
import { COPY_PORT, startPrivateServer, stopPrivateServer } from '../convert/private-server.ts';
import { discard } from '../host/clone.ts';
import { memberKey, type InstancePaths } from '../host/layout.ts';
import { readMarker, writeMarker } from '../host/marker.ts';
import { mkdir, rename } from '../host/root-files.ts';
import { ownerOf, type Owner } from '../host/users.ts';
import { majorOf } from '../postgres/installations.ts';
import { makeInstanceDirectories } from '../postgres/server.ts';
import { MAINTENANCE_DATABASE } from '../../postgres/roles.ts';
import { alterPassword, REMOVE_PASSWORD } from '../../postgres/sessions/password.ts';
import { withSuperuserSession } from '../../postgres/sessions/superuser.ts';
import { copying, type Executor } from './executor.ts';
import { copyParent, parentOf, writeMark, type NewInstance } from './make-instance.ts';
import { markerOfService, placesOf } from './upgrade.ts';

/**
 * Clones the data of a parent beside a fork, lets it recover, and gives it the password of the
 * fork.
 *
 * @returns a line for the user
 * @throws NotYet while the parent starts or stops; Refused with the reason when the data cannot be
 *   made
 */
export async function cloneBeside(
  executor: Executor,
  instance: NewInstance,
  upgrade: Upgrade,
  origin: Origin,
  show: ShowProgress,
): Promise<string> {
  const { machine, forkLimit } = executor;
  await refuseOtherData(executor, instance, origin);
  const make = () => makeData(executor, instance, upgrade, origin, show);
  const isClone = origin.repository === undefined && machine.cloneMethod !== 'copy';
  return isClone ? forkLimit(make) : copying(executor, make);
}

/** @throws Refused */
async function refuseOtherData(
  executor: Executor,
  { paths, installation }: NewInstance,
  origin: Origin,
): Promise<void> {
  const parent = await readMarker(parentOf(executor, origin));
  if (parent === null) throw new Refused(`its parent ${origin.parent} is no longer there`);
  const major = majorOf(parent);
  if (major !== installation.major)
    throw new Refused(`its parent is of PostgreSQL ${major}, and it is of ${installation.major}`);
  if (await isArchiveAway(paths.archive))
    throw new Refused(
      'its WAL archive is a link to a disk that is not there: mount it, then reset it again',
    );
}

async function makeData(
  executor: Executor,
  instance: NewInstance,
  upgrade: Upgrade,
  origin: Origin,
  show: ShowProgress,
): Promise<string> {
  const { machine } = executor;
  const { spec, paths, installation } = instance;
  const { id } = spec;
  const owner = ownerOf(machine, paths);
  const { made } = placesOf(executor, id, upgrade);
  const copy = copyPaths(machine, `${id}-reset`);
  try {
    await sweepCopies(machine);
    await discardCopy(machine, copy);
    await discard(machine, id, made);
    await mkdir(made, { recursive: true, mode: 0o700 });
    await makeInstanceDirectories(owner, copy);
    const at = { at: copy, owner, target: copy.data, show };
    const { detail } = await copyParent(executor, origin, at);
    await recover(executor, instance, origin, owner, copy);
    const password = await readPassword(executor, id);
    await withSuperuserSession(
      { server: copy, port: COPY_PORT, name: 'howdah reset', database: MAINTENANCE_DATABASE },
      async (client) => void (await client.query(password)),
    );
    await stopPrivateServer(machine, owner, copy);
    await rename(copy.data, join(made, '0'));
    // The private server has flushed nothing.
    await executor.flush();
    const marker = await markerOfService(executor, id);
    const exchange = { upgrade: upgrade.id, installation: installation.name };
    await writeMarker(machine.layout.service(id), { ...marker, exchange });
    return detail;
  } catch (error) {
    if (error instanceof NotYet) throw error;
    await killCopy(machine, copy);
    await discard(machine, id, made);
    throw new Refused(messageOf(error), { cause: error });
  } finally {
    await discardCopy(machine, copy);
  }
}

/** The archive of the parent may get what is missing while the first recovery goes on. */
const ATTEMPTS = 3;

/** Jobs of extensions run in the fork, and not beside it. */
const NO_JOBS = 'max_worker_processes = 0\n';

/** Starts a server on the data, which recovers: what fails here fails beside the fork. */
async function recover(
  executor: Executor,
  { spec, installation }: NewInstance,
  origin: Origin,
  owner: Owner | null,
  copy: InstancePaths,
): Promise<void> {
  const { machine } = executor;
  const { targetTime } = origin;
  for (let attempt = 1; ; attempt++) {
    const recovery = readText(join(copy.data, 'postgresql.auto.conf')) ?? '';
    const settings = `${recovery}${NO_JOBS}`;
    try {
      return await startPrivateServer(machine, owner, spec, copy, installation, settings);
    } catch (error) {
      await killCopy(machine, copy);
      const isBounded = targetTime !== null && origin.repository === undefined;
      if (!isBounded || !(error instanceof Error) || attempt === ATTEMPTS) throw error;
      const goesOn = await recoverOn(
        machine,
        owner,
        copy,
        parentOf(executor, origin),
        targetTime,
        error.message,
        () => writeMark(executor, origin),
      );
      if (!goesOn) throw error;
    }
  }
}

/**
 * Reads the password of the fork. As late as possible: a user may change it at any time.
 *
 * @returns the statement that gives it to other data
 * @throws NotYet when its server does not answer
 */
async function readPassword({ machine, monitor }: Executor, id: string): Promise<string> {
  const key = memberKey(id, machine.layout.primaryOf(id));
  try {
    const [row] = await monitor.query<{ verifier: string | null }>(
      key,
      `select rolpassword as verifier from pg_authid where rolname = '${ADMIN_ROLE}'`,
    );
    const verifier = row?.verifier ?? null;
    return verifier === null ? REMOVE_PASSWORD : alterPassword(verifier);
  } catch (error) {
    throw new NotYet('its server does not answer', { cause: error });
  }
}
