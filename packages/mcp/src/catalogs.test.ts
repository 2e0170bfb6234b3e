import { expect, test } from 'vitest';
import { countSql, migrationSql, objectsIn } from './catalogs.ts';

test('names of tables are quoted where rows are counted', () => {
  const tables = [{ schema: 'a"; drop table b; --', name: 'T', called: '', estimated: null }];
  expect(countSql(tables)).toBe('select 0, count(*) from "a""; drop table b; --"."T"');
});

test('a migration is one literal inside one literal', () => {
  expect(migrationSql("select 'a'; $$")).toBe("do 'begin execute ''select ''''a''''; $$''; end'");
  const escaping = migrationSql(String.raw`select E'\'; commit`);
  expect(escaping).toBe(String.raw`do  E'begin execute  E''select E''''\\\\''''; commit''; end'`);
});

test('rows of the catalogs are objects, and tables that have rows', () => {
  const { objects, tables } = objectsIn([
    ['index', 'public.i', 'public.t', 'CREATE INDEX', null, null, null],
    ['table', 'public.t', null, 'owner a', 'public', 't', '7'],
  ]);
  expect(objects).toEqual([
    { kind: 'index', name: 'public.i', of: 'public.t', definition: 'CREATE INDEX' },
    { kind: 'table', name: 'public.t', of: null, definition: 'owner a' },
  ]);
  expect(tables).toEqual([{ schema: 'public', name: 't', called: 'public.t', estimated: 7 }]);
});
