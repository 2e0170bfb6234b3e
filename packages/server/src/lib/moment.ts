/**
 * Parses a date-time with an offset: clients send up to nanoseconds, and a `+` that was not escaped
 * in a query arrives as a space.
 *
 * @returns ms since the epoch, and the text as in RFC 3339 with microseconds, the resolution of
 * PostgreSQL's clock; null if it is not one
 */
export function parseMoment(text: string): { ms: number; text: string } | null {
  const match = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+ -]\d\d:?\d\d)$/i.exec(text);
  if (match === null) return null;
  const [, seconds = '', fraction = '', zone = ''] = match;
  const offset = zone
    .replace(' ', '+')
    .replace(/(\d\d)(\d\d)$/, '$1:$2')
    .toUpperCase();
  const ms = Date.parse(`${seconds}${fraction.slice(0, 4)}${offset}`);
  return Number.isNaN(ms)
    ? null
    : { ms, text: `${seconds.toUpperCase()}${fraction.slice(0, 7)}${offset}` };
}
