/** Times as people type them and as tables show them. */
import { Failure } from './exit.ts';

const UNITS_MS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};
const DATE_TIME = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d/;
const OFFSET = /^([+-])((?:\d{1,9}[smhdw])+)$/;

/** Help text for options that take a time. */
export const MOMENTS = '-5m, yesterday or 2026-01-31T12:00:00Z';

/**
 * Reads the time in an option: a date-time, which the API checks; `now`; `yesterday`, which is 24
 * hours ago; or a distance from now, such as `-5m` or `+1d12h`.
 *
 * @returns a date-time for the API
 * @throws Failure usage
 */
export function momentOf(flag: string, text: string, now = Date.now()): string {
  if (DATE_TIME.test(text)) return text;
  const [, sign, distance = ''] = OFFSET.exec(text === 'yesterday' ? '-1d' : text) ?? [];
  if (text !== 'now' && sign === undefined)
    throw new Failure(
      `${flag}: found ${text}; allowed: now, yesterday, a distance like -5m or -1d12h (s, ` +
        'm, h, d, w), or a date-time like 2026-01-31T12:00:00Z',
      'usage',
    );
  const ms = millisecondsOf(distance);
  const moment = new Date(sign === '-' ? now - ms : now + ms);
  if (Number.isNaN(moment.getTime()))
    throw new Failure(`${flag}: found ${text}; the date is out of range`, 'usage');
  return moment.toISOString();
}

/**
 * Reads a length of time such as `20m` or `1d12h`.
 *
 * @returns seconds
 * @throws Failure usage
 */
export function secondsOf(argument: string, text: string): number {
  if (!/^(\d+[smhdw])+$/.test(text))
    throw new Failure(
      `${argument}: found ${text}; allowed: a length of time like 20m or 1d12h (s, m, h, d, w)`,
      'usage',
    );
  return millisecondsOf(text) / 1000;
}

function millisecondsOf(distance: string): number {
  return [...distance.matchAll(/(\d+)([smhdw])/g)].reduce(
    (sum, [, count, unit = '']) => sum + Number(count) * (UNITS_MS[unit] ?? 0),
    0,
  );
}

/** A length of time as people type it: `2h`, `1d12h`, `90s`. */
export function lengthOf(seconds: number): string {
  let rest = seconds * 1000;
  const parts = ['d', 'h', 'm', 's'].map((unit) => {
    const length = UNITS_MS[unit] ?? 1;
    const count = Math.floor(rest / length);
    rest -= count * length;
    return count === 0 ? '' : `${count}${unit}`;
  });
  return parts.join('');
}

/** {@link momentOf} for an option that may be absent. */
export function momentIfGiven(flag: string, text: string | undefined): string | undefined {
  return text === undefined ? undefined : momentOf(flag, text);
}

/** The words of `--time`. */
export const TIME_FORMS = ['relative', 'iso'] as const;

let isInFull = false;

/** From now on every time is shown as a date-time, not as a distance: `--time iso`. */
export function showTimesInFull(): void {
  isInFull = true;
}

/** Times within this distance are shown as distances. */
const NEAR_MS = 30 * 86_400_000;
const STEPS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1000],
] as const;

/** A time in a table: its {@link distance}, or with `--time iso` the date-time. */
export function relative(dateTime: string): string {
  return isInFull ? dateTime : distance(dateTime, Date.now());
}

/**
 * A date-time as its distance from now: `5 minutes ago`, `in 3 days`. Beyond 30 days it stays a
 * date-time.
 */
export function distance(dateTime: string, now: number): string {
  const ms = Date.parse(dateTime) - now;
  if (Number.isNaN(ms) || Math.abs(ms) > NEAR_MS) return dateTime;
  const [unit, length] = STEPS.find(([, least]) => Math.abs(ms) >= least) ?? ['second', 1000];
  const count = Math.floor(Math.abs(ms) / length);
  if (count === 0) return 'now';
  const words = `${count} ${unit}${count === 1 ? '' : 's'}`;
  return ms < 0 ? `${words} ago` : `in ${words}`;
}

/** A date-time, which can be pasted as an option, with its distance from now. */
export function dateAndDistance(dateTime: string): string {
  const words = relative(dateTime);
  return words === dateTime ? dateTime : `${dateTime} (${words})`;
}
