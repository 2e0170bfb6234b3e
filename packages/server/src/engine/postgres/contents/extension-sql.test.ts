import { expect, test } from 'vitest';
import { parseControlFile } from './control-file.ts';
import { creating } from './extension-sql.ts';

const statementsOf = (text: string, name = 'example') =>
  creating(parseControlFile({ name, directory: '/x', files: [] }, text));

test('an extension that can be moved is created where nobody else can write, and moved', () => {
  const [make, create, move, drop] = statementsOf('relocatable = true');
  const schema = /^create schema ("?howdah_[0-9a-f]{16}"?)$/.exec(make ?? '')?.[1];
  expect(create).toBe(`create extension "example" schema ${schema}`);
  expect(move).toBe('alter extension "example" set schema public');
  expect(drop).toBe(`drop schema ${schema}`);
  expect(statementsOf('relocatable = true')[0]).not.toBe(make);
});

test.each([
  ["schema = 'pg_catalog'", ['create extension "example"']],
  ['trusted = true', ['create extension "example" schema "public"']],
  ['', ['create schema "example"', 'create extension "example" schema "example"']],
  ["schema = 'other'", ['create schema "other"', 'create extension "example" schema "other"']],
])('%s decides about the schema', (text, first) => {
  expect(statementsOf(text).slice(0, first.length)).toEqual(first);
});

test('an untrusted extension that searches the schema of another is refused', () => {
  expect(() => statementsOf("requires = 'cube'\nrelocatable = true")).toThrow(/requires cube/);
  expect(statementsOf("requires = 'cube'\ntrusted = true")).toHaveLength(4);
});

test('an extension that needs no superuser is left to tsdbadmin', () => {
  expect(() => statementsOf('superuser = false')).toThrow(/create it by SQL/);
  expect(statementsOf('superuser = false\ntrusted = true')).not.toEqual([]);
});

test('tsdbadmin may set the parameters that an extension is of no use without', () => {
  expect(statementsOf('relocatable = true', 'pgaudit').at(-1)).toBe(
    'grant set on parameter pgaudit.log to tsdbadmin',
  );
});
