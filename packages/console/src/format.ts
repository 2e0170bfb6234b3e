/** Figures and times as people read them. */

/** A duration; a negative one, from clocks that differ, is 0. */
export function duration(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.round(ms / 60_000);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}

/** An estimated duration. */
export function roughly(seconds: number): string {
  return seconds < 60 ? `${Math.max(0, Math.round(seconds))} s` : duration(seconds * 1000);
}

export function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const positive = Math.max(0, count);
  const power = positive < 1 ? 0 : Math.min(Math.floor(Math.log10(positive) / 3), units.length - 1);
  const value = positive / 1000 ** power;
  return `${value < 10 && power > 0 ? value.toFixed(1) : Math.round(value)} ${units[power] ?? 'B'}`;
}

/** A number of days: "1 day", "2.5 days". */
export const days = (count: number): string =>
  count === 1 ? '1 day' : `${Number(count.toFixed(1))} days`;

export const cores = (millis: number): string => `${Number((millis / 1000).toPrecision(2))} CPU`;

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
export const fullTime = (iso: string): string => moment.format(new Date(iso));
export const clockTime = (iso: string): string => clock.format(new Date(iso));

/** "3 min ago". */
export function ago(iso: string, nowMs = Date.now()): string {
  const ms = nowMs - Date.parse(iso);
  if (ms < 5000) return 'just now';
  return `${ms < 60_000 ? `${Math.round(ms / 1000)} s` : duration(ms)} ago`;
}

/** "in 3 min". */
export function ahead(iso: string, nowMs = Date.now()): string {
  const ms = Date.parse(iso) - nowMs;
  return ms < 60_000 ? 'in less than a minute' : `in ${duration(ms)}`;
}
