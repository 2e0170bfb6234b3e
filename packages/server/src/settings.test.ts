import { expect, test } from 'vitest';
import { isWithin, parseMaintenanceWindow } from './settings.ts';

const SUNDAY = 29;
/** A moment of November 2026 in the time zone of this machine. */
const at = (day: number, hours: number, minutes: number): Date =>
  new Date(2026, 10, day, hours, minutes);

function within(text: string, moment: Date): boolean {
  const window = parseMaintenanceWindow(text);
  if (window === null) throw new Error(`${text} is no window`);
  return isWithin(window, moment);
}

test('a window is on its day, from its first minute until before its last', () => {
  expect(within('Sun 03:00-05:00', at(SUNDAY, 3, 0))).toBe(true);
  expect(within('Sun 03:00-05:00', at(SUNDAY, 4, 59))).toBe(true);
  expect(within('Sun 03:00-05:00', at(SUNDAY, 2, 59))).toBe(false);
  expect(within('Sun 03:00-05:00', at(SUNDAY, 5, 0))).toBe(false);
  expect(within('Sun 03:00-05:00', at(SUNDAY + 1, 4, 0))).toBe(false);
  expect(within('daily 00:00-24:00', at(SUNDAY + 1, 23, 59))).toBe(true);
});

test('a window may end on the next day', () => {
  expect(within('Sat 23:00-02:00', at(SUNDAY - 1, 23, 0))).toBe(true);
  expect(within('Sat 23:00-02:00', at(SUNDAY, 1, 59))).toBe(true);
  expect(within('Sat 23:00-02:00', at(SUNDAY, 2, 0))).toBe(false);
  expect(within('Sat 23:00-02:00', at(SUNDAY - 1, 1, 0))).toBe(false);
  expect(within('daily 23:00-02:00', at(SUNDAY - 1, 1, 0))).toBe(true);
});

test.each(['Sun', 'Sun 3:00-5:00', 'sunday 03:00-05:00', 'Sun 03:00-03:00', 'Sun 24:00-01:00'])(
  '%s is no window',
  (text) => expect(parseMaintenanceWindow(text)).toBeNull(),
);
test.each(['Sun 03:60-05:00', 'Sun 25:00-26:00', 'Xyz 03:00-05:00', '', 'daily 00:00-24:01'])(
  '%s is no window either',
  (text) => expect(parseMaintenanceWindow(text)).toBeNull(),
);
