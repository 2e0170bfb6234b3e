/**
 * The schedule of PostgreSQL's minor releases, for `howdah doctor`, which asks nobody outside of
 * the machine: the second Thursday of February, May, August and November, from the November after
 * the first release of a major version (postgresql.org/developer/roadmap). There may be others
 * between them, so a version may be further behind than the schedule says, and never less.
 */

/** January is 0. */
const MONTHS = [1, 4, 7, 10] as const;

/** The first release of a major version is in September: 17 in 2024, 18 in 2025. */
const yearOf = (major: number): number => major + 2007;

function secondThursday(year: number, month: number): Date {
  const first = new Date(Date.UTC(year, month, 1));
  const toThursday = (4 - first.getUTCDay() + 7) % 7;
  return new Date(Date.UTC(year, month, 1 + toThursday + 7));
}

/** The days of the scheduled minor releases of a major version until now, oldest first. */
function scheduledReleases(major: number, now: Date): Date[] {
  const begun = new Date(Date.UTC(yearOf(major), 9, 1));
  const years = Math.max(0, now.getUTCFullYear() - begun.getUTCFullYear() + 1);
  return Array.from({ length: years }, (_, n) => begun.getUTCFullYear() + n)
    .flatMap((year) => MONTHS.map((month) => secondThursday(year, month)))
    .filter((day) => day >= begun && day <= now);
}

/**
 * How many minor releases a version is behind at least, and since when; null: by the schedule it
 * may be the newest.
 *
 * @param version as the binary says it: 18.4
 * @returns since: the day of the first release that it lacks, as 2026-11-12
 */
export function releasesBehind(
  version: string,
  now: Date,
): { releases: number; since: string } | null {
  const [major = Number.NaN, minor = Number.NaN] = version.split('.').map(Number);
  const days = Number.isNaN(minor) ? [] : scheduledReleases(major, now);
  const missing = days.slice(minor);
  const [first] = missing;
  return first === undefined
    ? null
    : { releases: missing.length, since: first.toISOString().slice(0, 10) };
}
