import {
  CreateKeyBody,
  CreateServiceBody,
  RenameBody,
  ResizeBody,
  SeriesBody,
  SetEnvironmentBody,
  SetObjectStoreBody,
  UpdatePasswordBody,
} from '@howdah/contract';
import { Ajv } from 'ajv';
import addFormats from 'ajv-formats';
import { fastify } from 'fastify';
import { expect, test } from 'vitest';
import { createErrorHandler, explainValidation } from './errors.ts';

const ajv = new Ajv({ verbose: true, strict: false });
addFormats.default(ajv);

const explain = (schema: object, body: unknown): string => {
  const validate = ajv.compile(schema);
  expect(validate(body)).toBe(false);
  return explainValidation(
    (validate.errors ?? []).map(({ parentSchema, ...error }) => ({
      ...error,
      parentSchema: { ...parentSchema },
    })),
    'body',
  );
};

/** Each: the field, what was found, what is allowed. */
const REFUSED: [string, object, unknown, string[]][] = [
  ['a field that is missing', CreateServiceBody, {}, ['name: missing']],
  [
    'a field that does not exist',
    CreateKeyBody,
    { name: 'x', role: 'viewer', expires: 'y' },
    ['expires: no such field', 'allowed: name, role'],
  ],
  [
    'a value of another type',
    CreateServiceBody,
    { name: 5 },
    ['name: found 5', 'expected string', '1 to 128'],
  ],
  ['null for a value', CreateServiceBody, { name: null }, ['name: missing', 'string']],
  ['no body at all', CreateServiceBody, undefined, ['the body: missing', 'JSON object']],
  ['a body that is a list', CreateServiceBody, [], ['the body: found []', 'expected object']],
  [
    'a name that is empty',
    CreateServiceBody,
    { name: '' },
    ['name: found 0 characters', '1 to 128'],
  ],
  [
    'a name that is too long, in characters',
    CreateServiceBody,
    { name: '🐘'.repeat(129) },
    ['name: found 129 characters', '1 to 128'],
  ],
  [
    'a name with a control character',
    CreateServiceBody,
    { name: 'a\u0007b' },
    ['name: found "a\\u0007b"'],
  ],
  [
    'a name with a character that nobody sees',
    CreateServiceBody,
    { name: 'a\u202eb' },
    ['name: found "a\\u202eb"', 'visible text'],
  ],
  [
    'a choice',
    SetEnvironmentBody,
    { environment: 'prod' },
    ['environment: found "prod"', 'DEV, PROD'],
  ],
  [
    'a choice in a list',
    CreateServiceBody,
    { name: 'x', addons: ['ai', 'sql'] },
    ['addons.1: found "sql"', 'time-series, ai'],
  ],
  [
    'a number that is neither digits nor integer',
    ResizeBody,
    { cpu_millis: 'lots' },
    ['cpu_millis: found "lots"', 'thousandths of a core'],
  ],
  [
    'a fraction',
    CreateServiceBody,
    { name: 'x', replica_count: 0.5 },
    ['replica_count: found 0.5', 'integer'],
  ],
  [
    'a number below the least',
    SeriesBody,
    { name: 'x', from: '2026-01-01T00:00:00Z', to: '2026-01-02T00:00:00Z', bucket_seconds: 1 },
    ['bucket_seconds: found 1', '60'],
  ],
  [
    'no date-time',
    SeriesBody,
    { name: 'x', from: 'yesterday', to: '2026-01-02T00:00:00Z' },
    ['from: found "yesterday"', 'a date-time with an offset, like 2026-01-31T12:00:00Z'],
  ],
  ['a long value', RenameBody, { name: ['x'.repeat(500)] }, ['name: found ["xxx', '…']],
];
test.each(REFUSED)('%s', (_title, schema, body, parts) => {
  const message = explain(schema, body);
  expect(message, 'no sentence of the validator').not.toMatch(/must (NOT|be|match|pass)/);
  for (const part of parts) expect(message).toContain(part);
  expect(message.length).toBeLessThan(300);
});

test('a password is never shown', () => {
  for (const password of [
    'hunter2',
    `hunter2\u0007${'x'.repeat(20)}`,
    'hunter2'.repeat(50),
    ['hunter2'],
    { hunter2: 1 },
  ]) {
    const message = explain(UpdatePasswordBody, { password });
    expect(message).toContain('password');
    expect(message).not.toContain('hunter2');
  }
});

test('a secret key is never shown', () => {
  const place = { endpoint: 'https://a', bucket: 'made', region: 'a', key_id: 'a' };
  const message = explain(SetObjectStoreBody, { ...place, key: ['hunter2'] });
  expect(message).toContain('key');
  expect(message).not.toContain('hunter2');
});

test('nothing to explain', () => {
  expect(explainValidation([], 'query')).toBe('the query is not valid');
});

/** How an error that a handler throws is answered. */
async function answer(error: Error) {
  const app = fastify();
  app.setErrorHandler(createErrorHandler());
  app.get('/', async () => {
    throw error;
  });
  const { statusCode, headers, body } = await app.inject('/');
  await app.close();
  return { statusCode, headers, body };
}

test('a metadata database without space to write is a reason to try again, not a defect', async () => {
  const { statusCode, headers, body } = await answer(
    Object.assign(new Error('could not extend file "base/5/16384": No space left on device'), {
      code: '53100',
    }),
  );
  expect([statusCode, headers['retry-after']]).toEqual([503, '1']);
  expect(body).toContain('howdah doctor');
  expect(body).not.toContain('base/5');
});

test('an unexpected error is answered without its text', async () => {
  const { statusCode, body } = await answer(new Error('secret'));
  expect(statusCode).toBe(500);
  expect(body).not.toContain('secret');
});

test('requests that fail without the metadata database are logged once a second', async () => {
  const lines: string[] = [];
  let nowMs = 0;
  const app = fastify({
    logger: { level: 'error', stream: { write: (line) => lines.push(line) } },
  });
  app.setErrorHandler(createErrorHandler(() => nowMs));
  app.get('/', async () => {
    throw Object.assign(new Error('connect ENOENT'), { code: 'ENOENT' });
  });
  for (const atMs of [0, 10, 999, 1000]) {
    nowMs = atMs;
    expect((await app.inject('/')).statusCode).toBe(503);
  }
  await app.close();
  expect(lines.map((line) => /"omitted":(\d+)/.exec(line)?.[1])).toEqual(['0', '2']);
});
