/**
 * The state of a former primary that is in no WAL. It would come back as it was when this server is
 * the primary again, although the service has gone on without it
 * (docs/decisions/0090-state-of-a-former-primary.md).
 */
import { join } from 'node:path';
import { listEntries, removeEntry } from '../../../lib/untrusted-files.ts';
import type { DataPlace } from '../server-files.ts';
import { isFollower } from '../replication/replication-conf.ts';

/**
 * Directories of such state: replication slots at their old positions, which would deliver
 * changes twice and keep WAL, statistics, those of statements too, and exported snapshots.
 */
const OF_ONE_SERVER = ['pg_replslot', 'pg_stat', 'pg_snapshots'] as const;
/** PostgreSQL takes no other characters ([PG] 26.2.6). */
const SLOT_NAME = /^[a-z0-9_]{1,63}$/;

/** @returns the slots of users that it had */
export async function removeServerState({ data }: DataPlace): Promise<string[]> {
  const slots = (await listEntries(join(data, 'pg_replslot'))).filter(
    (name) => SLOT_NAME.test(name) && !isFollower(name),
  );
  for (const directory of OF_ONE_SERVER)
    for (const name of await listEntries(join(data, directory)))
      await removeEntry(join(data, directory, name));
  return slots.toSorted();
}
