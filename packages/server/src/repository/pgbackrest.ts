/** The installed pgBackRest. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../lib/run.ts';
import { TUNING } from '../lib/tuning.ts';
import { ensureSystemUser } from '../lib/system-users.ts';
import { RepositoryProblem, type PgBackRest } from './repository.ts';

/**
 * The system user that pgBackRest runs as where the control plane is root: no user of a service, so
 * that no tenant can read the credentials in its environment, and no user that can write anything
 * but a repository on this machine.
 */
export const BACKUP_USER = 'howdah-backup';

/**
 * The system user that pgBackRest runs as where it reads a repository of another installation. That
 * names the files that a restore writes: this user owns nothing that these could replace.
 */
const FOREIGN_USER = 'howdah-foreign';

/**
 * The oldest pgBackRest for each major version of PostgreSQL, by its release notes; a newer major
 * needs at least the newest of these.
 */
const OLDEST: readonly (readonly [major: number, version: string])[] = [
  [18, '2.55'],
  [17, '2.54'],
  [16, '2.48'],
];

/**
 * The last one with `repo-put`, by which our objects are written: its source removed the command.
 */
const NEWEST = '2.59';

const NEEDED = `pgBackRest and, as root, the system user ${BACKUP_USER}`;
export const PGBACKREST_REMEDY = 'apt-get install pgbackrest, then restart Howdah';

/** pgBackRest as PATH has it, without a user; null: it is not installed. Changes nothing. */
export async function lookUpPgBackRest(
  ioTimeoutSeconds = TUNING.repositoryTimeoutSeconds,
): Promise<PgBackRest | null> {
  for (const directory of [...(process.env['PATH'] ?? '').split(':'), '/usr/bin'].filter(Boolean)) {
    const program = join(directory, 'pgbackrest');
    try {
      await access(program, constants.X_OK);
    } catch {
      continue; // the next directory may have it
    }
    const version = /\d+(\.\d+)+/.exec(await run(program, ['version']))?.[0] ?? 'unknown';
    return { program, version, user: null, ioTimeoutSeconds };
  }
  return null;
}

/** pgBackRest, and the user that it runs as; null: it, or the user, is missing. */
export async function findPgBackRest(ioTimeoutSeconds?: number): Promise<PgBackRest | null> {
  const found = await lookUpPgBackRest(ioTimeoutSeconds);
  if (found === null || process.getuid?.() !== 0) return found;
  const user = await ensureSystemUser(BACKUP_USER);
  return user === null ? null : { ...found, user };
}

/**
 * pgBackRest for a repository of another installation.
 *
 * @throws RepositoryProblem without its user
 */
export async function forForeign(found: PgBackRest): Promise<PgBackRest> {
  if (found.user === null) return { ...found, isForeign: true };
  const user = await ensureSystemUser(FOREIGN_USER);
  if (user === null)
    throw new RepositoryProblem(
      `the system user ${FOREIGN_USER} is missing: useradd --system --user-group ${FOREIGN_USER}`,
    );
  return { ...found, user, isForeign: true };
}

/**
 * Why services of a major version of PostgreSQL cannot be backed up off this machine, with the
 * command that fixes it; null: they can.
 */
export function whyNotServed(found: PgBackRest | null, major: number): string | null {
  if (found === null)
    return `backups off this machine need ${NEEDED}; one is missing: ${PGBACKREST_REMEDY}`;
  if (!isAtLeast(NEWEST, found.version))
    return (
      `pgBackRest ${found.version} has no command to write an object any more, ` +
      `pgBackRest up to ${NEWEST} has: install it, Debian 13 has 2.55`
    );
  const oldest = OLDEST.find(([served]) => major >= served)?.[1] ?? '2.45';
  if (isAtLeast(found.version, oldest)) return null;
  const can = `pgBackRest ${oldest} or newer can: Debian 13 has 2.55`;
  return `pgBackRest ${found.version} cannot back up PostgreSQL ${major}, ${can}`;
}

function isAtLeast(version: string, oldest: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [oldestMajor = 0, oldestMinor = 0] = oldest.split('.').map(Number);
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
}
