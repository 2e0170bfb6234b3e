/** JSON that a schema of the OpenAPI document allows, and JSON that it does not. */
import * as fc from 'fast-check';
import { ajv, DOCUMENT, type Schema } from './document.ts';

/** Characters for a text that must not hold control characters. */
const CHARACTERS = [...'abzABZ019 _-.,:;/\\\'"`$%&<>{}()[]|~^*?!@#+=', 'é', 'ß', '漢', '🐘'];

const isObject = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const numberOr = (value: unknown, fallback: number): number =>
  typeof value === 'number' ? value : fallback;

function resolve(schema: Schema): Schema {
  if (typeof schema['$ref'] !== 'string') return schema;
  let found: unknown = DOCUMENT;
  for (const part of schema['$ref'].replace(/^#\//, '').split('/'))
    found = isObject(found) ? found[part] : undefined;
  if (!isObject(found)) throw new Error(`${schema['$ref']} leads nowhere`);
  return found;
}

const propertiesOf = (schema: Schema): [string, Schema][] =>
  Object.entries(isObject(schema['properties']) ? schema['properties'] : {}).flatMap(
    ([name, value]) => (isObject(value) ? [[name, value]] : []),
  );

/** Values that a schema allows. */
export function valid(given: Schema): fc.Arbitrary<unknown> {
  const schema = resolve(given);
  const choices = listOf(schema['anyOf']).filter(isObject);
  if (choices.length > 0) return fc.oneof(...choices.map(valid));
  if (Array.isArray(schema['enum'])) return fc.constantFrom(...schema['enum']);
  switch (schema['type']) {
    case 'string':
      return text(schema);
    case 'integer':
      return fc.integer({
        min: numberOr(schema['minimum'], -5),
        max: numberOr(schema['maximum'], 1_000_000),
      });
    case 'number':
      return fc.double({ noNaN: true, noDefaultInfinity: true });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case 'array':
      return array(schema);
    case 'object':
      return object(schema);
    default:
      throw new Error(`no way to make what this allows: ${JSON.stringify(schema)}`);
  }
}

function text(schema: Schema): fc.Arbitrary<string> {
  if (schema['format'] === 'date-time')
    return fc
      .date({ min: new Date('2020-01-01'), max: new Date('2040-01-01'), noInvalidDate: true })
      .map((date) => date.toISOString());
  const [minLength, maxLength] = [
    numberOr(schema['minLength'], 0),
    Math.min(numberOr(schema['maxLength'], 40), 200),
  ];
  const pattern = typeof schema['pattern'] === 'string' ? new RegExp(schema['pattern'], 'u') : null;
  const free = fc.string({ unit: fc.constantFrom(...CHARACTERS), minLength, maxLength });
  if (pattern === null || pattern.test('a 🐘')) return free;
  return (
    fc
      .stringMatching(new RegExp(pattern.source))
      // A pattern may need more characters than free texts get here.
      .filter(
        (made) => made.length >= minLength && made.length <= numberOr(schema['maxLength'], 1000),
      )
  );
}

function array(schema: Schema): fc.Arbitrary<unknown[]> {
  const item = isObject(schema['items']) ? valid(schema['items']) : fc.constant('x');
  const lengths = {
    minLength: numberOr(schema['minItems'], 0),
    maxLength: Math.min(numberOr(schema['maxItems'], 3), 20),
  };
  return schema['uniqueItems'] === true ? fc.uniqueArray(item, lengths) : fc.array(item, lengths);
}

/** Names of a map. */
function namesOf({ propertyNames: names }: Schema): fc.Arbitrary<string> {
  const pattern = isObject(names) && typeof names['pattern'] === 'string' ? names['pattern'] : null;
  return fc.stringMatching(pattern === null ? /^[a-z0-9]{1,8}$/ : new RegExp(pattern));
}

function object(schema: Schema): fc.Arbitrary<unknown> {
  const { additionalProperties: values } = schema;
  // A map: the document names no keys.
  if (isObject(values))
    return fc.dictionary(namesOf(schema), valid(values), {
      minKeys: numberOr(schema['minProperties'], 0),
      maxKeys: numberOr(schema['maxProperties'], 8),
    });
  const required = listOf(schema['required']).map(String);
  const model = Object.fromEntries(
    propertiesOf(schema).map(([name, property]) => [name, valid(property)]),
  );
  return fc.record(model, { requiredKeys: required });
}

/** JSON of any kind, and texts that break what is careless with them. */
const anything: fc.Arbitrary<unknown> = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(
    '',
    '\0',
    'a\nb',
    '\u001b[31m',
    'x'.repeat(3000),
    "'; drop table services; --",
    '$(id)',
    '../..',
    -1,
    1.5,
    1e308,
    2 ** 53,
    null,
    [],
    {},
    true,
  ),
);

/** Values that a schema does not allow: good bodies with one fault, and bodies of another kind. */
export function invalid(given: Schema): fc.Arbitrary<unknown> {
  const check = ajv.compile(
    typeof given['$ref'] === 'string' ? { $ref: `api${given['$ref']}` } : given,
  );
  const schema = resolve(given);
  const names = propertiesOf(schema).map(([name]) => name);
  const good = valid(given).map((body) => (isObject(body) ? body : {}));
  const wrongs: fc.Arbitrary<unknown>[] = [anything];
  if (names.length > 0) {
    wrongs.push(
      fc
        .tuple(good, fc.constantFrom(...names), anything)
        .map(([body, name, value]) => ({ ...body, [name]: value })),
    );
    wrongs.push(
      fc
        .tuple(good, fc.constantFrom(...names))
        .map(([body, name]) =>
          Object.fromEntries(Object.entries(body).filter(([key]) => key !== name)),
        ),
    );
  }
  wrongs.push(
    fc
      .tuple(good, fc.string({ minLength: 1, maxLength: 20 }), anything)
      .map(([body, name, value]) => ({ ...body, [name]: value })),
  );
  return fc.oneof(...wrongs).filter((body) => !check(JSON.parse(JSON.stringify(body))));
}
