import { expect, test } from 'vitest';
import { blockingLocks, describeDiff, diffRows, diffSchemas, type DatabaseObject } from './diff.ts';

const table = (name: string, definition = 'owner a'): DatabaseObject => ({
  kind: 'table',
  name,
  of: null,
  definition,
});
const column = (of: string, name: string, definition: string): DatabaseObject => ({
  kind: 'column',
  name: `${of}.${name}`,
  of,
  definition,
});

test('columns of a table that stays are differences; those of a new table are its parts', () => {
  const before = [table('a'), column('a', 'x', 'integer'), column('a', 'old', 'text')];
  const after = [
    table('a'),
    column('a', 'x', 'bigint'),
    table('b'),
    column('b', 'id', 'integer not null'),
  ];
  const diff = diffSchemas(before, after);
  expect(diff).toEqual({
    added: [
      {
        kind: 'table',
        name: 'b',
        definition: 'owner a',
        parts: ['column b.id: integer not null'],
      },
    ],
    removed: [{ kind: 'column', name: 'a.old', definition: 'text' }],
    changed: [{ kind: 'column', name: 'a.x', from: 'integer', to: 'bigint' }],
  });
  expect(describeDiff(diff)).toBe(
    '1 added: table b; 1 removed: column a.old; 1 changed: column a.x',
  );
});

test('objects of two kinds may have one name; equal databases have no difference', () => {
  const sequence: DatabaseObject = { ...table('a', 'bigint'), kind: 'sequence' };
  expect(diffSchemas([table('a')], [table('a'), sequence]).added).toHaveLength(1);
  const same = diffSchemas([table('a'), sequence], [sequence, table('a')]);
  expect(describeDiff(same)).toBe('no difference of the schema');
});

test('all of a definition is compared, and its beginning is shown', () => {
  const long = 'x'.repeat(5000);
  const { changed } = diffSchemas([table('a', `${long}1`)], [table('a', `${long}2`)]);
  expect(changed).toHaveLength(1);
  expect(changed[0]?.to.length).toBeLessThan(3000);
});

test('tables with another number of rows are listed, in order', () => {
  const from = [
    { table: 'b', rows: 1 },
    { table: 'same', rows: 5 },
    { table: 'gone', rows: null },
  ];
  const to = [
    { table: 'same', rows: 5 },
    { table: 'b', rows: 2 },
    { table: 'a', rows: 0 },
  ];
  expect(diffRows(from, to)).toEqual([
    { table: 'a', from: null, to: 0 },
    { table: 'b', from: 1, to: 2 },
  ]);
});

test('the strongest lock of each table is reported, if reads or writes wait for it', () => {
  const held = [
    { table: 'read', mode: 'AccessShareLock' },
    { table: 'written', mode: 'RowExclusiveLock' },
    { table: 'altered', mode: 'AccessExclusiveLock' },
    { table: 'altered', mode: 'ShareLock' },
    { table: 'indexed', mode: 'ShareLock' },
  ];
  expect(blockingLocks(held)).toEqual([
    { table: 'altered', mode: 'AccessExclusiveLock', blocks: 'reads and writes' },
    { table: 'indexed', mode: 'ShareLock', blocks: 'writes' },
  ]);
});
