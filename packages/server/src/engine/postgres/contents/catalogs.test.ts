import { DatabaseError } from 'pg';
import { expect, test } from 'vitest';
import { compareCatalogs, readCatalogSizes, type CatalogSizes } from './catalogs.ts';

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

test('each database is compared: missing objects and databases are found', () => {
  const of = (rows: Record<string, number>): CatalogSizes => ({
    rows: new Map(Object.entries(rows)),
    writes: 0,
  });
  const service = of({ 'pg_class of tsdb': 5, 'pg_class of elsewhere': 8 });
  expect(
    compareCatalogs(service, of({ 'pg_class of tsdb': 5, 'pg_class of elsewhere': 7 }), service),
  ).toEqual({
    equal: false,
    detail: 'the catalogs differ: pg_class of elsewhere has 7 rows, in the service 8',
  });
  expect(compareCatalogs(service, of({ 'pg_class of tsdb': 5 }), service)).toEqual({
    equal: false,
    detail: 'the catalogs differ: pg_class of elsewhere has no rows, in the service 8',
  });
  expect(compareCatalogs(of({ 'pg_class of tsdb': 5 }), service, service).detail).toContain(
    'not compared',
  );
});

test('the catalogs of a database that is dropped meanwhile are left out', async () => {
  const gone = Object.assign(new DatabaseError('it does not exist', 0, 'error'), { code: '3D000' });
  const sizes = await readCatalogSizes(async (database, work) => {
    if (database === 'dropped') throw gone;
    return work(
      Object({
        query: async (sql: string) => {
          if (sql.includes('datallowconn'))
            return { rows: [{ name: 'dropped' }, { name: 'tsdb' }] };
          if (sql.includes('count(*)')) return { rows: [{ name: 'pg_class', rows: 5 }] };
          return { rows: [{ writes: '2' }] };
        },
      }),
    );
  });
  expect([...sizes.rows.keys()]).toEqual(['pg_class', 'pg_class of tsdb']);
  expect(sizes.writes).toBe(4);
});

test('where something was made or dropped meanwhile, nothing is claimed', () => {
  expect(compareCatalogs(sizes(5), sizes(5, 0), sizes(6)).detail).toContain('not compared');
  // Made and dropped again: only the statistics know.
  expect(compareCatalogs(sizes(5, 7), sizes(6, 0), sizes(5, 9)).detail).toContain('not compared');
});
