/**
 * The services in a repository: pgBackRest's stanzas. An upgrade to another major version gives a
 * service new data, whose WAL begins again: it has a stanza of its own.
 */
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

/** @param upgrade the upgrade that has made the data; null: none has */
export const stanzaOf = (id: string, upgrade: string | null): string =>
  upgrade === null ? id : `${id}-${upgrade}`;

/** The service of a stanza. */
export const serviceOf = (stanza: string): string => stanza.split('-')[0] ?? stanza;

/** The directory of the objects that say since when a service is unknown. */
const UNKNOWN = 'unknown';
const DAY_MS = 86_400_000;

/** A service that the installation knows, a deleted one too. */
export type KnownService = Readonly<{
  /** The stanzas of its data: the present data, and what an upgrade exchanges it with. */
  stanzas: readonly string[];
  /** When its data was removed from the machine; null: it was not. */
  removedMs: number | null;
  /** For how long each repository keeps its backups; null: as it says itself. */
  retentionDays: number | null;
}>;

/**
 * Removes the backups of services that were removed from the machine, and those that the
 * installation has not known, for the retention of the service, or else of the repository. Data
 * that a service had before an upgrade is unknown too, but the last backups of a service that
 * exists stay. The time of the removal, or of the first call that misses a stanza, is noted in the
 * repository: so a recovery from an older state of the metadata loses no backups at once.
 *
 * @param find those of some services that the installation knows, by their ids
 * @returns the stanzas that were removed
 * @throws RepositoryProblem
 */
export async function removeUnknownServices(
  program: PgBackRest,
  repository: KeptRepository,
  find: (services: readonly string[]) => Promise<ReadonlyMap<string, KnownService>>,
  nowMs = Date.now(),
): Promise<string[]> {
  const ids = await listDirectories(program, repository, 'backup');
  const known = await find([...new Set(ids.map(serviceOf))]);
  const notes = new Set(await listObjects(program, repository, UNKNOWN));
  const removed: string[] = [];
  for (const id of ids) {
    const note = `${UNKNOWN}/${id}`;
    const service = known.get(serviceOf(id));
    const isPresent = service?.stanzas.includes(id) === true;
    if (isPresent && service.removedMs === null) {
      if (notes.has(note)) await removeObject(program, repository, note);
      continue;
    }
    const noted = notes.has(note) ? await getObject(program, repository, note) : null;
    const before = noted === null ? null : parseNote(noted.toString('utf8'));
    const gone: Gone = {
      sinceMs: (isPresent ? service.removedMs : null) ?? before?.sinceMs ?? nowMs,
      ownDays: service === undefined ? (before?.ownDays ?? null) : service.retentionDays,
    };
    // An unreadable note removes nothing.
    if (Number.isNaN(gone.sinceMs) || Number.isNaN(gone.ownDays)) continue;
    if (gone.sinceMs !== before?.sinceMs || gone.ownDays !== before.ownDays)
      await putObject(program, repository, note, Buffer.from(formatNote(gone)));
    if (nowMs - gone.sinceMs < (gone.ownDays ?? repository.retentionDays) * DAY_MS) continue;
    const isLast = !isPresent && service !== undefined;
    if (isLast && !(await haveBackup(program, repository, service.stanzas))) continue;
    // A stanza's backups are last: a call that follows an interrupted one finds it by them.
    await removeDirectory(program, repository, `archive/${id}`);
    await removeDirectory(program, repository, `backup/${id}`);
    await removeObject(program, repository, note);
    removed.push(id);
  }
  return removed;
}

/** Since when data is gone, and its service's own retention; null: it had none. */
type Gone = { sinceMs: number; ownDays: number | null };

/** NaN for what cannot be read. */
function parseNote(text: string): Gone {
  const [since = '', days] = text.split(' ');
  return { sinceMs: Date.parse(since), ownDays: days === undefined ? null : Number(days) };
}

const formatNote = ({ sinceMs, ownDays }: Gone): string =>
  [new Date(sinceMs).toISOString(), ...(ownDays === null ? [] : [ownDays])].join(' ');

/** Whether one of some stanzas has a full backup, whose directory has its time as its name. */
async function haveBackup(
  program: PgBackRest,
  repository: KeptRepository,
  stanzas: readonly string[],
): Promise<boolean> {
  for (const stanza of stanzas) {
    const names = await listDirectories(program, repository, `backup/${stanza}`);
    if (names.some((name) => /^\d{8}-\d{6}F$/.test(name))) return true;
  }
  return false;
}
