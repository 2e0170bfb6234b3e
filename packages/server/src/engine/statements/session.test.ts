import { expect, test } from 'vitest';
import { whyFull } from './session.ts';

test.each([
  ['too many connections for role "howdah_reader"', /10 statements run on it already/],
  ['too many connections for database "tsdb"', /connection limit of the database tsdb/],
  ['sorry, too many clients already', /all connections of the server are taken: close some/],
  [
    'remaining connection slots are reserved for roles with the SUPERUSER attribute',
    /all connections of the server are taken: close some/,
  ],
])('a connection refused with "%s" is explained by what is full', (message, told) => {
  expect(whyFull(message)).toMatch(told);
});
