/** The window in which minor versions of PostgreSQL are applied by restarts. */
import { Type } from 'typebox';

/** `day`: 0 for Sunday; null: each day. Minutes of the day; a window may end on the next day. */
export type MaintenanceWindow = Readonly<{ day: number | null; from: number; to: number }>;

const DAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const DAY_MINUTES = 24 * 60;

/** Reads `Sun 03:00-05:00` or `daily 03:00-05:00`; null: it is none. */
export function parseMaintenanceWindow(text: string): MaintenanceWindow | null {
  const [, day = '', from = '', to = ''] =
    /^(daily|[A-Z][a-z]{2}) ([0-9]{2}:[0-9]{2})-([0-9]{2}:[0-9]{2})$/.exec(text) ?? [];
  const [first, last] = [minuteOf(from), minuteOf(to)];
  if (first === null || last === null || first === last || first === DAY_MINUTES) return null;
  if (day === 'daily') return { day: null, from: first, to: last };
  return DAYS.includes(day) ? { day: DAYS.indexOf(day), from: first, to: last } : null;
}

function minuteOf(text: string): number | null {
  const [hours = NaN, minutes = NaN] = text.split(':').map(Number);
  const minute = hours * 60 + minutes;
  return minutes < 60 && minute <= DAY_MINUTES ? minute : null;
}

/** The setting HOWDAH_MAINTENANCE_WINDOW. */
export const MaintenanceWindowText = Type.Refine(
  Type.String({
    unset: 'none',
    example: 'Sun 03:00-05:00',
    allowed: 'a day (Sun, Mon, … or daily) and two times of the local clock, HH:MM-HH:MM',
    description:
      'when services are restarted, one after the other, whose PostgreSQL has a newer minor version',
  }),
  (text: string) => parseMaintenanceWindow(text) !== null,
);

/** Whether a moment is in the window, by the clock and time zone of this machine. */
export function isWithin({ day, from, to }: MaintenanceWindow, moment: Date): boolean {
  const minute = moment.getHours() * 60 + moment.getMinutes();
  const isOn = (weekday: number): boolean => day === null || day === (weekday + 7) % 7;
  const today = moment.getDay();
  if (from < to) return isOn(today) && minute >= from && minute < to;
  return (isOn(today) && minute >= from) || (isOn(today - 1) && minute < to);
}
