import { isReservedRole } from '@howdah/contract/types';
import { expect, test } from 'vitest';
import { reservedNote } from './checks.ts';

test.each(['howdah', 'howdah_reader', 'howdah_pooler', 'howdah_control', '_howdah_probe'])(
  'the role %s of a source is not imported',
  (name) => {
    expect(isReservedRole(name)).toBe(true);
  },
);

test.each(['app', 'tsdbadmin', 'my_howdah', 'Howdah', 'postgres'])(
  'the role %s of a source is imported',
  (name) => {
    expect(isReservedRole(name)).toBe(false);
  },
);

test('a note names the roles that are left out, and what to do', () => {
  expect(reservedNote([])).toEqual([]);
  expect(reservedNote(['howdah_reader', 'howdah_pooler'])[0]).toMatch(
    /howdah_reader, howdah_pooler.*rename/,
  );
});
