import { expect, test } from 'vitest';
import { parseMoment } from './moment.ts';

test.each([
  ['2026-01-31T12:00:00Z', '2026-01-31T12:00:00Z'],
  ['2026-01-31t12:00:00.123456789z', '2026-01-31T12:00:00.123456Z'],
  // A plus that was not escaped in a query.
  ['2026-01-31T12:00:00 05:30', '2026-01-31T12:00:00+05:30'],
  // As `date +%FT%T%z` writes it: CloudNativePG takes RFC 3339 only.
  ['2026-01-31T12:00:00+0530', '2026-01-31T12:00:00+05:30'],
  ['2026-01-31T12:00:00-0800', '2026-01-31T12:00:00-08:00'],
])('%s is the moment %s', (given, text) => {
  expect(parseMoment(given)).toEqual({ ms: Date.parse(text), text });
});

test.each(['2026-01-31', '2026-01-31T12:00:00', '2026-13-31T12:00:00Z', 'now'])(
  '%s is none',
  (given) => {
    expect(parseMoment(given)).toBeNull();
  },
);
