/** Characters that a program of ours cannot have in a path. */

/**
 * initdb puts paths into double quotes of a shell, libpq and PgBouncer separate hosts by commas,
 * and a line of configuration ends at a line feed.
 */
// oxlint-disable-next-line no-control-regex -- they are what is searched for
const UNUSABLE = /["\\$`,\u0000-\u001f\u007f]/;

/** Why a directory of an installation cannot have this path; null: it can. */
export function problemOfPath(path: string): string | null {
  const [found] = UNUSABLE.exec(path) ?? [];
  return found === undefined
    ? null
    : `HOWDAH_HOME: ${JSON.stringify(path)} contains ${JSON.stringify(found)}, which ` +
        `PostgreSQL's programs cannot have in a path; choose one without " \\ $ \` , and control ` +
        'characters';
}
