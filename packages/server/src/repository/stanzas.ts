/** The services in a repository: pgBackRest's stanzas, each named by the id of its service. */
import {
  getObject,
  listDirectories,
  listObjects,
  putObject,
  removeDirectory,
  removeObject,
} from './objects.ts';
import type { PgBackRest } from './repository.ts';
import type { KeptRepository } from './source.ts';

/** The directory of the objects that say since when a service is unknown. */
const UNKNOWN = 'unknown';
const DAY_MS = 86_400_000;

/**
 * Removes the backups of services that were removed from the machine, or that the installation has
 * not known, for the retention of the repository. The time of the removal, or of the first call
 * that misses a service, is noted in the repository: so a recovery from an older state of the
 * metadata loses no backups at once.
 *
 * @param find the services that the installation knows of some ids, deleted ones too, each with the
 *   time at which its data was removed from the machine; null: it was not
 * @returns the ids of the services whose backups were removed
 * @throws RepositoryProblem
 */
export async function removeUnknownServices(
  program: PgBackRest,
  repository: KeptRepository,
  find: (ids: readonly string[]) => Promise<ReadonlyMap<string, number | null>>,
  nowMs = Date.now(),
): Promise<string[]> {
  const ids = await listDirectories(program, repository, 'backup');
  const known = await find(ids);
  const notes = new Set(await listObjects(program, repository, UNKNOWN));
  const removed: string[] = [];
  for (const id of ids) {
    const note = `${UNKNOWN}/${id}`;
    const removedMs = known.get(id);
    if (removedMs === null) {
      if (notes.has(note)) await removeObject(program, repository, note);
      continue;
    }
    const noted = notes.has(note) ? await getObject(program, repository, note) : null;
    const notedMs = noted === null ? null : Date.parse(noted.toString('utf8'));
    const sinceMs = removedMs ?? notedMs ?? nowMs;
    // An unreadable note removes nothing.
    if (Number.isNaN(sinceMs)) continue;
    if (sinceMs !== notedMs)
      await putObject(program, repository, note, Buffer.from(new Date(sinceMs).toISOString()));
    if (nowMs - sinceMs < repository.retentionDays * DAY_MS) continue;
    // Its backups are last: a call that follows an interrupted one finds it by them.
    await removeDirectory(program, repository, `archive/${id}`);
    await removeDirectory(program, repository, `backup/${id}`);
    await removeObject(program, repository, note);
    removed.push(id);
  }
  return removed;
}
