import { expect, test } from 'vitest';
import { decode, lsnOf, numberOf } from './decode.ts';

const bytes = (...values: number[]): Buffer => Buffer.from(values);
function int(value: number, size: 2 | 4): Buffer {
  const buffer = Buffer.alloc(size);
  buffer.writeUIntBE(value, 0, size);
  return buffer;
}
function position(value: bigint): Buffer {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64BE(value);
  return buffer;
}
const text = (value: string): Buffer => Buffer.from(`${value}\0`);
/** A value; null: SQL's null, undefined: not sent. */
const value = (of: string | null | undefined): Buffer =>
  of === undefined
    ? Buffer.from('u')
    : of === null
      ? Buffer.from('n')
      : Buffer.concat([Buffer.from('t'), int(Buffer.byteLength(of), 4), Buffer.from(of)]);
const tuple = (...of: (string | null | undefined)[]): Buffer =>
  Buffer.concat([int(of.length, 2), ...of.map(value)]);
const message = (kind: string, ...parts: Buffer[]): Buffer =>
  Buffer.concat([Buffer.from(kind), ...parts]);
const RELATION = int(16_400, 4);

test('a row that is inserted, with nulls and characters of several bytes', () => {
  expect(decode(message('I', RELATION, Buffer.from('N'), tuple('1', null, 'ä€')))).toEqual({
    kind: 'insert',
    relation: 16_400,
    row: ['1', null, 'ä€'],
  });
});

test.each([
  ['a byte order mark', '\uFEFFx'],
  ['microseconds', '2026-11-30 08:00:00.123456+00'],
  ['JSON with equal keys and spaces', '{"a": 1.0, "a": 2}'],
  ['what is no number', 'NaN'],
  ['nothing', ''],
])('a value is the text that the source sent: %s', (_, sent) => {
  const insert = message('I', RELATION, Buffer.from('N'), tuple(sent));
  expect(decode(insert)).toMatchObject({ row: [sent] });
});

test('an update without a change of the key has the new row only', () => {
  const update = message('U', RELATION, Buffer.from('N'), tuple('1', undefined));
  expect(decode(update)).toEqual({
    kind: 'update',
    relation: 16_400,
    old: null,
    row: ['1', undefined],
  });
});

test.each(['K', 'O'])('an update has the former row, by which it is found (%s)', (kind) => {
  const update = message(
    'U',
    RELATION,
    Buffer.from(kind),
    tuple('1', null),
    Buffer.from('N'),
    tuple('2', 'x'),
  );
  expect(decode(update)).toEqual({
    kind: 'update',
    relation: 16_400,
    old: ['1', null],
    row: ['2', 'x'],
  });
});

test('a row that is deleted', () => {
  expect(decode(message('D', RELATION, Buffer.from('K'), tuple('1')))).toEqual({
    kind: 'delete',
    relation: 16_400,
    old: ['1'],
  });
});

test('tables that are truncated, and how', () => {
  const truncate = (options: number) =>
    decode(message('T', int(2, 4), bytes(options), RELATION, int(7, 4)));
  const both = { kind: 'truncate', relations: [16_400, 7] };
  expect(truncate(0)).toEqual({ ...both, cascade: false, restart: false });
  expect(truncate(1)).toEqual({ ...both, cascade: true, restart: false });
  expect(truncate(2)).toEqual({ ...both, cascade: false, restart: true });
});

test('a transaction is applied up to the end of its commit', () => {
  expect(decode(message('B', position(5n), Buffer.alloc(12)))).toEqual({
    kind: 'begin',
    commitLsn: 5n,
  });
  const commit = message('C', bytes(0), position(5n), position(9n), Buffer.alloc(8));
  expect(decode(commit)).toEqual({ kind: 'commit', endLsn: 9n });
});

test('a relation says which columns identify its rows', () => {
  const column = (name: string, flags: number): Buffer =>
    Buffer.concat([bytes(flags), text(name), Buffer.alloc(8)]);
  const columns = Buffer.concat([int(2, 2), column('id', 1), column('note', 0)]);
  const relation = message('R', RELATION, text(''), text('t'), Buffer.from('d'), columns);
  expect(decode(relation)).toEqual({
    kind: 'relation',
    relation: {
      id: 16_400,
      schema: 'pg_catalog',
      name: 't',
      isFull: false,
      columns: [
        { name: 'id', isKey: true },
        { name: 'note', isKey: false },
      ],
    },
  });
});

test('other messages are left out; a value of an unknown kind is an error', () => {
  expect(decode(message('Y'))).toEqual({ kind: 'other' });
  const unknown = message('I', RELATION, Buffer.from('N'), int(1, 2), Buffer.from('b'));
  expect(() => decode(unknown)).toThrow('unknown kind b');
});

test('a position is written as PostgreSQL writes it', () => {
  expect(numberOf('16/B374D848')).toBe(0x16b374d848n);
  expect(lsnOf(0x16b374d848n)).toBe('16/B374D848');
  expect(lsnOf(numberOf('0/0'))).toBe('0/0');
});
