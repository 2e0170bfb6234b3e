/**
 * Makes a former primary a standby. A server has state that is in no WAL: it would come back as it
 * was when this server is the primary again, although the service has gone on without it
 * (docs/decisions/0090-state-of-a-former-primary.md).
 */
import { join } from 'node:path';
import { archiveLeftovers } from '../../backup/recovery.ts';
import { writeOwned } from '../../backup/take.ts';
import type { InstancePaths } from '../../host/layout.ts';
import type { Machine } from '../../host/machine-record.ts';
import { listEntries, removeEntry } from '../../host/service-files.ts';
import { ownerOf } from '../../host/users.ts';
import { isFollower } from '../../postgres/replication.ts';

/**
 * Directories with such state: replication slots at their old positions, which would deliver
 * changes twice and keep WAL, statistics, those of statements too, and exported snapshots.
 */
const OF_ONE_SERVER = ['pg_replslot', 'pg_stat', 'pg_snapshots'] as const;
/** PostgreSQL takes no other characters ([PG] 26.2.6). */
const SLOT_NAME = /^[a-z0-9_]{1,63}$/;

/**
 * Makes the data of a primary that was shut down those of a standby. The new primary has all of its
 * WAL. An interruption is repaired by another copy: without the last file, it is no standby.
 *
 * @returns the slots of users that were removed
 */
export async function makeStandby(machine: Machine, paths: InstancePaths): Promise<string[]> {
  const owner = ownerOf(machine, paths);
  const slots = await removeServerState(paths);
  await archiveLeftovers(owner, paths);
  // Settings of ALTER SYSTEM, and where a restore ended.
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
  await writeOwned(owner, join(paths.data, 'standby.signal'), '');
  return slots;
}

/** @returns the slots of users that it had */
export async function removeServerState({ data }: Pick<InstancePaths, 'data'>): Promise<string[]> {
  const slots = (await listEntries(join(data, 'pg_replslot'))).filter(
    (name) => SLOT_NAME.test(name) && !isFollower(name),
  );
  for (const directory of OF_ONE_SERVER)
    for (const name of await listEntries(join(data, directory)))
      await removeEntry(join(data, directory, name));
  return slots.toSorted();
}
