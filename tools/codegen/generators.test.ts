/**
 * Properties of the OpenAPI document that generators of clients need. Only openapi-typescript is an
 * npm package; docs/compatibility.md has the commands of the other generators.
 */
import { readFile } from 'node:fs/promises';
import openapiTS, { astToString } from 'openapi-typescript';
import { afterEach, expect, test, vi } from 'vitest';

type Json = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const path = new URL('../../openapi/openapi.json', import.meta.url);
const document: Json = JSON.parse(await readFile(path, 'utf8'));

/** Every object of the document, with the way to it. */
function* objectsIn(value: unknown, way = '#'): Generator<[string, Json]> {
  if (Array.isArray(value))
    for (const [index, inner] of value.entries()) yield* objectsIn(inner, `${way}/${index}`);
  if (!isObject(value)) return;
  yield [way, value];
  for (const [key, inner] of Object.entries(value)) yield* objectsIn(inner, `${way}/${key}`);
}

/** As generators of Go name a field: without separators, upper and lower case alike. */
const goName = (name: string, schema: unknown): string => {
  const given = isObject(schema) ? schema['x-go-name'] : undefined;
  return (typeof given === 'string' ? given : name.replaceAll(/[_-]/g, '')).toLowerCase();
};

const twice = (names: readonly string[]): string[] =>
  names.filter((name, index) => names.indexOf(name) !== index);

afterEach(() => vi.restoreAllMocks());

test('openapi-typescript makes types of the document without a warning', async () => {
  const said = [
    vi.spyOn(console, 'warn').mockReturnValue(),
    vi.spyOn(console, 'error').mockReturnValue(),
  ];
  const types = astToString(await openapiTS(JSON.stringify(document)));
  expect(types).toContain('createService: {');
  expect(said.flatMap(({ mock }) => mock.calls)).toEqual([]);
});

test('no two fields of a schema, and no two parameters of a call, have one name in Go', () => {
  const clashes = [...objectsIn(document)].flatMap(([way, { properties, parameters }]) => {
    const fields = isObject(properties)
      ? Object.entries(properties).map(([name, schema]) => goName(name, schema))
      : [];
    const inputs = Array.isArray(parameters)
      ? parameters.filter(isObject).map((one) => goName(String(one['name']), one['schema']))
      : [];
    return [...twice(fields), ...twice(inputs)].map((name) => `${way}: ${name}`);
  });
  expect(clashes).toEqual([]);
});

test('no enumeration has two values that differ in upper and lower case only', () => {
  const clashes = [...objectsIn(document)].flatMap(([way, { enum: values }]) =>
    Array.isArray(values) && twice(values.map((value) => String(value).toLowerCase())).length > 0
      ? [way]
      : [],
  );
  expect(clashes).toEqual([]);
});

test('every link leads to a call of the document, by parameters of its path', () => {
  const calls = new Map<unknown, string>();
  for (const [way, { operationId, responses }] of objectsIn(document['paths']))
    if (responses !== undefined) calls.set(operationId, way);
  const links = [...objectsIn(document['paths'])].flatMap(([, { links: found }]) =>
    isObject(found) ? Object.values(found).filter(isObject) : [],
  );
  expect(links.length).toBeGreaterThan(4);
  for (const { operationId, parameters } of links) {
    const names = [...(calls.get(operationId) ?? '').matchAll(/\{([a-z_]+)\}/g)].map(
      ([, name = '']) => name,
    );
    expect(Object.keys(Object(parameters)).toSorted(), String(operationId)).toEqual(
      names.toSorted(),
    );
  }
});

test('every call documents that the HTTP server may refuse it', () => {
  const answers = [...objectsIn(document['paths'])].flatMap(([, { responses }]) =>
    isObject(responses) ? [Object.keys(responses)] : [],
  );
  expect(answers.length).toBeGreaterThan(70);
  for (const statuses of answers) expect(statuses).toEqual(expect.arrayContaining(['408', '431']));
});
