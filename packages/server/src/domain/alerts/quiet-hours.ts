/** Hours in which the messages of a destination are held. */
import type { QuietHours } from '@howdah/contract';

/** Whether a moment is in quiet hours. Equal ends: all day. */
export function isQuiet({ from, to, time_zone: timeZone }: QuietHours, at: Date): boolean {
  const time = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  }).format(at);
  return from < to ? from <= time && time < to : from <= time || time < to;
}

/** Whether there is a time zone of this name. */
export function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en-GB', { timeZone: name }).format();
    return true;
  } catch {
    return false;
  }
}
