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
 * Removes the backups of services that the installation has not known for the retention of the
 * repository. The first call that misses a service notes the time in the repository, so that a
 * recovery from an older state of the metadata loses no backups at once.
 *
 * @param findKnown the services that the installation knows, deleted ones too, of some ids
 * @returns the ids of the services whose backups were removed
 * @throws RepositoryProblem
 */
export async function removeUnknownServices(
  program: PgBackRest,
  repository: KeptRepository,
  findKnown: (ids: readonly string[]) => Promise<ReadonlySet<string>>,
  nowMs = Date.now(),
): Promise<string[]> {
  const ids = await listDirectories(program, repository, 'backup');
  const known = await findKnown(ids);
  const notes = new Set(await listObjects(program, repository, UNKNOWN));
  const removed: string[] = [];
  for (const id of ids) {
    const note = `${UNKNOWN}/${id}`;
    if (known.has(id)) {
      if (notes.has(note)) await removeObject(program, repository, note);
      continue;
    }
    if (!notes.has(note)) {
      await putObject(program, repository, note, Buffer.from(new Date(nowMs).toISOString()));
      continue;
    }
    const since = await getObject(program, repository, note);
    const unknownMs = nowMs - Date.parse(since?.toString('utf8') ?? '');
    if (!(unknownMs >= repository.retentionDays * DAY_MS)) continue;
    // Its backups are last: a call that follows an interrupted one finds it by them.
    await removeDirectory(program, repository, `archive/${id}`);
    await removeDirectory(program, repository, `backup/${id}`);
    await removeObject(program, repository, note);
    removed.push(id);
  }
  return removed;
}
