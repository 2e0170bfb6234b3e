import { expect, test } from 'vitest';
import { compareCatalogs, type CatalogSizes } from './catalogs.ts';

const sizes = (tables: number, writes = 7): CatalogSizes => ({
  rows: new Map([
    ['pg_class', tables],
    ['pg_authid', 3],
  ]),
  writes,
});

test('catalogs of a service in which nothing was made meanwhile have to be equal', () => {
  expect(compareCatalogs(sizes(5), sizes(5, 0), sizes(5))).toEqual({
    equal: true,
    detail: '8 rows, the same as in the service',
  });
  expect(compareCatalogs(sizes(5), sizes(4, 0), sizes(5))).toEqual({
    equal: false,
    detail: 'the catalogs differ: pg_class has 4 rows, in the service 5',
  });
});

test('where something was made or dropped meanwhile, nothing is claimed', () => {
  expect(compareCatalogs(sizes(5), sizes(5, 0), sizes(6)).detail).toContain('not compared');
  // Made and dropped again: only the statistics know.
  expect(compareCatalogs(sizes(5, 7), sizes(6, 0), sizes(5, 9)).detail).toContain('not compared');
});
